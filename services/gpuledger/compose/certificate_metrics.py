"""When the certificates and credentials expire with which this process logs in to its servers. It decides nothing.

The files are read again and again, because whoever renews them replaces them while the process runs.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from cryptography import x509
from nats.errors import Error as NatsError
from prometheus_client import Gauge

from gpuledger.db.tls_files import tls_files
from gpuledger.ledger.credentials import jwt_validity
from gpuledger.runtime.settings import NatsIdentity

log = structlog.get_logger("gpuledger.certificates")

INTERVAL_S: Final = 30.0
"""How often the files are read."""

_EXPIRES = Gauge(
    "gpuledger_certificate_expires_seconds", "When the certificate expires, in seconds since 1970.", ["certificate"]
)
_LIFE = Gauge("gpuledger_certificate_life_seconds", "For how long it is valid in all.", ["certificate"])


class Validity(NamedTuple):
    """From when to when something is valid."""

    begins: datetime
    ends: datetime


class Watched(NamedTuple):
    """A file, what its metrics call it, and how to read how long it is valid; None: without end."""

    name: str
    file: Path | None
    read: Callable[[Path], Validity | None]


def certificate_validity(file: Path) -> Validity:
    """The validity of a certificate and those above it in its file, the first of which to expire counts.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    return min(_validities(file), key=lambda one: one.ends)


def authorities_validity(file: Path) -> Validity:
    """The validity of authorities, the last of which to expire counts: an old one may stay beside its successor.

    Raises:
        OSError, ValueError: they cannot be read.
    """
    return max(_validities(file), key=lambda one: one.ends)


def credentials_validity(file: Path) -> Validity | None:
    """The validity of the JWT in a credentials file; None where it has none, or one without end.

    Raises:
        NatsError, ValueError: it cannot be read.
    """
    found = jwt_validity(file)
    return None if found is None else Validity(*found)


def watched_files(identity: NatsIdentity, database_url: str) -> Sequence[Watched]:
    """The files with which this process logs in to NATS and to PostgreSQL."""
    database = tls_files(database_url)
    return (
        Watched("nats-client", identity.certificate, certificate_validity),
        Watched("nats-authorities", identity.ca, authorities_validity),
        Watched("nats-credentials", identity.credentials, credentials_validity),
        Watched("postgres-client", database.certificate, certificate_validity),
        Watched("postgres-authorities", database.authorities, authorities_validity),
    )


async def measure_certificates(files: Sequence[Watched], *, interval_s: float = INTERVAL_S) -> None:
    """Measure until cancelled. Of a file that cannot be read, the last values stay."""
    problems: dict[str, str] = {}
    while True:
        for one in files:
            problem = await asyncio.to_thread(_measure, one)
            if problem and problems.get(one.name) != problem:
                log.warning("certificate.not-measured", certificate=one.name, reason=problem)
            problems[one.name] = problem
        await asyncio.sleep(interval_s)


def _measure(one: Watched) -> str:
    """Why the file could not be read; empty where it could."""
    if one.file is None:
        return ""
    try:
        validity = one.read(one.file)
    except (NatsError, OSError, ValueError) as error:
        return f"{one.file}: {error}"
    if validity is None:
        _EXPIRES.remove(one.name)
        _LIFE.remove(one.name)
        return ""
    _EXPIRES.labels(one.name).set(validity.ends.timestamp())
    _LIFE.labels(one.name).set((validity.ends - validity.begins).total_seconds())
    return ""


def _validities(file: Path) -> Iterator[Validity]:
    for one in x509.load_pem_x509_certificates(file.read_bytes()):
        yield Validity(one.not_valid_before_utc, one.not_valid_after_utc)
