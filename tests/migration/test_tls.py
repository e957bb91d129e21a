"""TLS to PostgreSQL, as libpq and a real certificate authority have it; the server behind has none of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import pytest

from gpuledger.db.engine import connect, connect_blocking
from gpuledger.db.errors import DatabaseUnavailableError
from support.nats_logins import Certificates
from support.postgres_proxies import HOST, TlsFront

REMEDY = r"See to sslmode, sslrootcert, sslcert and sslkey in DATABASE_URL"


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def front(database_url: str, made: Certificates) -> Iterator[TlsFront]:
    with TlsFront(database_url, *made.server) as front:
        yield front


def url_with(url: str, host: str = HOST, **parameters: object) -> str:
    parts = urlsplit(url)
    netloc = parts.netloc.replace(f"@{HOST}:", f"@{host}:")
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(parameters)))


async def is_encrypted(url: str) -> bool:
    async with connect(url, application_name="test") as connection:
        assert await (await connection.execute("SELECT 1")).fetchone() == (1,)
        return bool(connection.pgconn.ssl_in_use)


async def test_the_server_is_verified_by_its_authority_and_name(front: TlsFront, made: Certificates) -> None:
    assert await is_encrypted(url_with(front.url, sslmode="verify-full", sslrootcert=made.ca))


async def test_the_environment_says_it_where_the_url_does_not(
    front: TlsFront, made: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", str(made.ca))
    assert await is_encrypted(front.url)


@pytest.mark.parametrize("host", [HOST, "localhost"])
async def test_another_authority_or_name_is_refused_and_says_what_to_do(
    host: str, front: TlsFront, made: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    authority = Certificates(tmp_path / "other").ca if host == HOST else made.ca
    reason = "certificate verify failed" if host == HOST else "does not match host name"
    url = url_with(front.url, host, sslmode="verify-full", sslrootcert=authority)
    with pytest.raises(DatabaseUnavailableError, match=rf"Cannot reach PostgreSQL at .*{reason}.*{REMEDY}"):
        async with connect(url, application_name="test"):
            pass
    with (
        pytest.raises(DatabaseUnavailableError, match=rf"{reason}.*{REMEDY}"),
        connect_blocking(url, application_name="test"),
    ):
        pass


async def test_an_authority_that_is_not_there_is_named(front: TlsFront, tmp_path: Path) -> None:
    url = url_with(front.url, sslmode="verify-full", sslrootcert=tmp_path / "nowhere.crt")
    with pytest.raises(DatabaseUnavailableError, match=rf"nowhere\.crt.* does not exist.*{REMEDY}"):
        async with connect(url, application_name="test"):
            pass


async def test_a_server_without_tls_is_refused_where_it_must_have_it(database_url: str) -> None:
    with pytest.raises(DatabaseUnavailableError, match=rf"does not support SSL.*{REMEDY}"):
        async with connect(url_with(database_url, sslmode="require"), application_name="test"):
            pass


async def test_a_server_that_asks_for_a_certificate_gets_ours(database_url: str, made: Certificates) -> None:
    ours = made.client("services.test")
    assert ours.key is not None
    ours.key.chmod(0o600)
    with TlsFront(database_url, *made.server, made.ca) as front:
        verified: dict[str, Any] = {"sslmode": "verify-full", "sslrootcert": made.ca}
        with pytest.raises(DatabaseUnavailableError):
            await is_encrypted(url_with(front.url, **verified))
        assert await is_encrypted(url_with(front.url, **verified, sslcert=ours.certificate, sslkey=ours.key))
        ours.key.chmod(0o644)
        with pytest.raises(DatabaseUnavailableError, match=rf"private key file .* has group or world access.*{REMEDY}"):
            await is_encrypted(url_with(front.url, **verified, sslcert=ours.certificate, sslkey=ours.key))
