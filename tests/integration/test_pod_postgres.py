"""PostgreSQL as the chart's pod runs it: over TLS alone, with a Secret that is renewed and data that are kept."""

from collections.abc import Iterator

import psycopg
import pytest

from gpuledger.api.bundled import DATABASE
from gpuledger.local.pods.foreground import serve
from gpuledger.local.pods.postgres import OF_PATRONI
from gpuledger.local.servers.errors import ServerBinaryMissingError, ServerStartError
from gpuledger.local.servers.postgres_data import run_program
from gpuledger.local.servers.privileges import as_account, as_ourselves, owner_for
from gpuledger.runtime.settings import POSTGRES_BIN
from support.pod_place import CHECK_S, Place, running
from support.servers import short_directory
from support.tls_postgres import needs_tls_postgres, programs
from support.waiting import eventually


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """With the programs of the wheel, as earlier releases had them."""
    monkeypatch.delenv(POSTGRES_BIN, raising=False)
    with short_directory() as root:
        yield Place(root)


@pytest.fixture
def with_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the programs of the image."""
    monkeypatch.setenv(POSTGRES_BIN, str(programs()))


@needs_tls_postgres
@pytest.mark.usefixtures("place", "with_tls")
async def test_another_password_of_the_database_takes_effect(place: Place) -> None:
    async with running(place.postgres()):
        await eventually(place.answers)
        old = place.url()
        place.renew("postgres", "password")
        await eventually(place.answers)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            await psycopg.AsyncConnection.connect(old)


@needs_tls_postgres
@pytest.mark.usefixtures("place", "with_tls")
async def test_a_renewed_certificate_is_shown_while_sessions_go_on(place: Place) -> None:
    async with running(place.postgres()):
        await eventually(place.answers)
        async with await psycopg.AsyncConnection.connect(place.url()) as session:
            ours = (place.root / "services" / "ca.crt").read_bytes()
            place.renew("ca")
            await eventually(place.answers)
            assert (place.root / "services" / "ca.crt").read_bytes() != ours
            assert (await (await session.execute("SELECT 2")).fetchone()) == (2,)


@needs_tls_postgres
@pytest.mark.usefixtures("place", "with_tls")
async def test_nothing_comes_to_the_database_without_tls_nor_as_its_superuser(place: Place) -> None:
    async with running(place.postgres()):
        await eventually(place.answers)
        with pytest.raises(psycopg.OperationalError, match="no encryption"):
            await psycopg.AsyncConnection.connect(place.url(sslmode="disable"))
        with pytest.raises(psycopg.OperationalError, match="rejects connection"):
            await psycopg.AsyncConnection.connect(place.url(user="postgres"))


@needs_tls_postgres
@pytest.mark.usefixtures("place", "with_tls")
async def test_the_login_is_bound_to_the_encrypted_channel(place: Place) -> None:
    async with running(place.postgres()):
        await eventually(lambda: place.answers(channel_binding="require"))


@needs_tls_postgres
async def test_data_of_an_earlier_release_are_served(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServerStartError, match=f"cannot serve TLS.*{POSTGRES_BIN}"):
        await serve(place.postgres(), check_interval_s=CHECK_S)
    data = place.root / "d-postgres" / "postgres"
    owner = owner_for(data)
    launch = as_ourselves("INT") if owner is None else as_account(owner, "INT")
    rows = b"CREATE TABLE kept (n int);\nINSERT INTO kept VALUES (7);\nGRANT SELECT ON kept TO gpuledger;\n"
    assert run_program("postgres", data, launch, "--single", "-D", str(data), DATABASE, given=rows).returncode == 0
    monkeypatch.setenv(POSTGRES_BIN, str(programs()))
    async with running(place.postgres()):
        await eventually(place.answers)
        async with await psycopg.AsyncConnection.connect(place.url()) as session:
            assert await (await session.execute("SELECT n FROM kept")).fetchall() == [(7,)]


async def test_data_of_another_major_version_are_refused_with_the_commands_that_move_them(place: Place) -> None:
    data = place.root / "d-postgres" / "postgres"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("17\n")
    with pytest.raises(ServerStartError, match=r"written by PostgreSQL 17, .*PostgreSQL\) 18.*pg_dump.*pg_restore"):
        await serve(place.postgres(), check_interval_s=CHECK_S)


async def test_the_data_of_one_of_three_servers_are_not_served_as_if_they_were_all(place: Place) -> None:
    data = place.root / "d-postgres" / "postgres"
    data.mkdir(parents=True)
    (data / OF_PATRONI).write_text("{}")
    with pytest.raises(ServerStartError, match=r"is of one of three servers.*pg_dump.*pg_restore"):
        await serve(place.postgres(), check_interval_s=CHECK_S)


async def test_a_build_without_openssl_is_refused(place: Place) -> None:
    with pytest.raises(ServerStartError, match=f"cannot serve TLS.*{POSTGRES_BIN}"):
        await serve(place.postgres(), check_interval_s=CHECK_S)


async def test_a_folder_that_holds_no_data_of_postgresql_is_refused(place: Place) -> None:
    (place.root / "d-postgres" / "postgres").mkdir(parents=True)
    with pytest.raises(ServerStartError, match=r"has no PG_VERSION"):
        await serve(place.postgres(), check_interval_s=CHECK_S)


async def test_programs_that_are_not_where_the_environment_says_are_missed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(POSTGRES_BIN, str(place.root))
    with pytest.raises(ServerBinaryMissingError, match=f"{POSTGRES_BIN} names .* has no `postgres`"):
        await serve(place.postgres(), check_interval_s=CHECK_S)
