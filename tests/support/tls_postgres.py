"""PostgreSQL with OpenSSL, for tests of what the chart's pods run: the image's, as the wheel has a build without."""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from gpuledger.runtime.settings import POSTGRES_BIN
from support.pods.sandbox import BUNDLE

PROBE_MAX_S: Final = 20.0
_IN_IMAGE: Final = BUNDLE / "rootfs/usr/lib/postgresql/18/bin"


@cache
def programs() -> Path:
    """Where its programs should be: where the environment says, else in the image that `make image` built."""
    return Path(os.environ.get(POSTGRES_BIN) or _IN_IMAGE)


@cache
def missing() -> str:
    """Why there are none, and what to do; empty where they run."""
    command = (str(programs() / "pg_config"), "--configure")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_MAX_S, check=False)
    except OSError:
        return f"no PostgreSQL with OpenSSL in {programs()}: make image, or set {POSTGRES_BIN}"
    if "openssl" not in done.stdout:
        return f"{programs()} does not run here, or has no OpenSSL: {done.stderr.strip()}"
    return ""


needs_tls_postgres = pytest.mark.skipif(bool(missing()), reason=missing())
