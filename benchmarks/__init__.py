"""Benchmarks: what the suite costs against things that do the same work in the same run."""
