"""When certificates and credentials expire is measured from the files that the logins use, also after a renewal."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from nats.errors import Error as NatsError
from prometheus_client import REGISTRY

from gpuledger.compose.certificate_metrics import measure_certificates, watched_files
from gpuledger.edge.kube.pki import certificate_pem, new_authority, new_serving
from gpuledger.ledger.credentials import jwt_validity
from gpuledger.runtime.settings import NatsIdentity
from support.nkeys import ACCOUNT, USER, Key, credentials
from support.projections import stop
from support.waiting import eventually

NOW = datetime(2026, 5, 4, tzinfo=UTC)
DAY = timedelta(days=1)
BEGUN_EARLIER_S = 7200.0
"""Our certificates begin and end a little earlier, because clocks differ."""

URL = "postgresql://u:p@db.example/gpuledger"


def expires(name: str) -> float | None:
    return REGISTRY.get_sample_value("gpuledger_certificate_expires_seconds", {"certificate": name})


def life(name: str) -> float | None:
    return REGISTRY.get_sample_value("gpuledger_certificate_life_seconds", {"certificate": name})


def authority(days: int) -> bytes:
    return certificate_pem(new_authority("test", NOW, days * DAY).certificate)


def serving(days: int) -> bytes:
    signer = new_authority("test", NOW, 100 * DAY)
    return certificate_pem(new_serving("test", ["a.example"], signer, NOW, days * DAY).certificate)


@asynccontextmanager
async def measuring(identity: NatsIdentity, url: str = URL) -> AsyncIterator[None]:
    task = asyncio.create_task(measure_certificates(watched_files(identity, url), interval_s=0.02))
    try:
        yield
    finally:
        await stop(task)


async def becomes(name: str, days: int) -> None:
    async def is_it() -> bool:
        return expires(name) == pytest.approx((NOW + days * DAY).timestamp(), abs=BEGUN_EARLIER_S)

    await eventually(is_it)


async def test_a_renewed_certificate_is_read_again(tmp_path: Path) -> None:
    certificate, ca = tmp_path / "tls.crt", tmp_path / "ca.crt"
    certificate.write_bytes(serving(30))
    ca.write_bytes(authority(10))
    async with measuring(NatsIdentity(None, ca, certificate, tmp_path / "tls.key")):
        await becomes("nats-client", 30)
        await becomes("nats-authorities", 10)
        assert life("nats-client") == pytest.approx(30 * DAY.total_seconds(), rel=0.01)
        certificate.write_bytes(b"half written")
        ca.write_bytes(authority(10) + authority(90))
        await becomes("nats-authorities", 90)
        await becomes("nats-client", 30)  # what cannot be read changes nothing
        certificate.write_bytes(serving(60) + authority(50))
        await becomes("nats-client", 50)


async def test_the_files_of_postgres_are_those_that_libpq_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("url.crt", serving(7)), ("environment.crt", serving(8)), ("root.crt", authority(9))):
        (tmp_path / name).write_bytes(text)
    monkeypatch.setenv("PGSSLCERT", str(tmp_path / "environment.crt"))
    monkeypatch.setenv("PGSSLROOTCERT", str(tmp_path / "root.crt"))
    async with measuring(NatsIdentity()):
        await becomes("postgres-client", 8)
        await becomes("postgres-authorities", 9)
    async with measuring(NatsIdentity(), f"{URL}?sslcert={tmp_path / 'url.crt'}"):
        await becomes("postgres-client", 7)


async def test_a_jwt_is_measured_as_long_as_it_has_an_end(tmp_path: Path) -> None:
    file, account, user = tmp_path / "service.creds", Key(ACCOUNT), Key(USER)

    def write(days: int | None) -> None:
        end = None if days is None else int((NOW + days * DAY).timestamp())
        file.write_text(credentials(account.claim(user.public, "services", {}, end), user.seed))

    async def absent() -> bool:
        return expires("nats-credentials") is None

    write(3)
    async with measuring(NatsIdentity(file)):
        await becomes("nats-credentials", 3)
        write(None)
        await eventually(absent)
        write(4)
        await becomes("nats-credentials", 4)
        file.write_text("user: service\npassword: p\n")
        await eventually(absent)


def test_a_jwt_that_is_none_is_named(tmp_path: Path) -> None:
    (file := tmp_path / "service.creds").write_text(credentials("no.jwt.here", Key(USER).seed))
    with pytest.raises(NatsError, match=r"the JWT in the credentials file .* cannot be read; write it anew"):
        jwt_validity(file)


def test_authorities_of_the_system_are_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert {one.file for one in watched_files(NatsIdentity(), f"{URL}?sslrootcert=system")} == {None}
