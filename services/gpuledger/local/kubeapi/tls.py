"""Makes a CA and a server certificate in a folder, and renews them when they are about to expire.

Only the owner can read the keys.
"""

import ssl
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from gpuledger.edge.kube import pki

VALID_DAYS = 365
RENEWED_BEFORE_DAYS = 30
_PRIVATE_MODE = 0o600


class Certificates(NamedTuple):
    """The paths of the files."""

    ca: Path
    certificate: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        """The TLS context of a server with this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        return context


def certificates(directory: Path, host: str, now: datetime) -> Certificates:
    """The certificates in `directory`, made anew unless they are valid for a while.

    Raises:
        OSError: the directory cannot be written.
    """
    files = Certificates(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    if not _hold(files, now):
        directory.mkdir(parents=True, exist_ok=True)
        _make(files, host, now)
    return files


def _hold(files: Certificates, now: datetime) -> bool:
    if not all(path.is_file() for path in files):
        return False
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    return certificate.not_valid_after_utc > now + timedelta(days=RENEWED_BEFORE_DAYS)


def _make(files: Certificates, host: str, now: datetime) -> None:
    life = timedelta(days=VALID_DAYS)
    authority = pki.new_authority("gpuledger embedded CA", now, life)
    serving = pki.new_serving("gpuledger embedded API server", _hosts(host), authority, now, life)
    files.ca.write_bytes(pki.certificate_pem(authority.certificate))
    files.certificate.write_bytes(pki.certificate_pem(serving.certificate))
    files.key.touch(mode=_PRIVATE_MODE)
    files.key.write_bytes(pki.key_pem(serving.key))


def _hosts(host: str) -> list[str]:
    return list(dict.fromkeys(name for name in ("localhost", "kubernetes.default.svc", "127.0.0.1", host) if name))
