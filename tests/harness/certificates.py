"""Certificates for tests, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HAS_OPENSSL = shutil.which("openssl") is not None


def make(folder: Path, name: str, *options: str) -> tuple[Path, Path]:
    """A self-signed certificate of ``localhost``, and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-days", "2", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *(options or ("-nodes",))], check=True, capture_output=True)
    key.chmod(0o600)
    return certificate, key
