"""The jobs as an application: ``spark-submit …/fsmq/cli/pipeline/__main__.py JOB …``."""

from fsmq.cli.pipeline import pipeline

pipeline(prog_name="fsmq pipeline")
