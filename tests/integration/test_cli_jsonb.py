"""`gpuledger migrate --jsonb`: what it says and leaves alone, and what becomes of what people built on the tables."""

from collections.abc import Iterator

import psycopg
import pytest

from gpuledger.cli.errors import ExitCode
from gpuledger.db.json_columns import JSON_COLUMNS
from gpuledger.db.migrate import migrate
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection import contraction
from gpuledger.projection.rebuild import rebuild
from gpuledger.readmodels.projections import AvailabilityProjection
from support.cli import Cli, Run, aside
from support.dra_facts import device, events_of, fact_at, published
from support.json_types import as_an_older_build_left_it, types_of_documents
from support.ledgers import jetstream_ledger
from support.projections import execute, publish
from support.servers import database_name

ALL = sum(map(len, JSON_COLUMNS.values()))
FACTS = [fact_at(1, "n1", published("n1", [device("g1")], node="n1"))]

NEVER_S = 3_600


@pytest.fixture
def url(url: str) -> str:
    return as_an_older_build_left_it(url)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fresh_nats: NatsServer, url: str) -> Run:
    monkeypatch.setenv("NATS_URL", fresh_nats.url)
    monkeypatch.setenv("DATABASE_URL", url)
    return aside(Cli(capsys))


def analyst_of(database_url: str) -> str:
    """Owns a schema with views on tables of ours, and is nobody whom the migrator could become."""
    return f"analyst_{database_name(database_url)}"


@pytest.fixture
def migrator_url(database_url: str) -> Iterator[str]:
    """A database of a user who may do nothing beside it, in which an analyst has a schema."""
    name = database_name(database_url)
    migrator, analyst = f"migrator_{name}", analyst_of(database_url)
    with psycopg.connect(database_url, autocommit=True) as connection:
        for statement in (
            f"CREATE ROLE {migrator} LOGIN PASSWORD 'secret'",
            f"CREATE ROLE {analyst} LOGIN PASSWORD 'secret'",
            f"ALTER DATABASE {name} OWNER TO {migrator}",
            f"CREATE SCHEMA people AUTHORIZATION {analyst}",
        ):
            connection.execute(statement.encode())
    owned = psycopg.conninfo.make_conninfo(database_url, user=migrator, password="secret")
    migrate(owned)
    yield as_an_older_build_left_it(owned)
    with psycopg.connect(database_url, autocommit=True) as connection:
        for role in (analyst, migrator):
            connection.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER".encode())
            connection.execute(f"DROP OWNED BY {role} CASCADE".encode())
            connection.execute(f"DROP ROLE {role}".encode())


async def fold(url: str, server: NatsServer) -> None:
    """Have rows with documents."""
    async with jetstream_ledger(server.url, puts_in_order=True) as ledger:
        await publish(ledger, events_of(FACTS))
        await rebuild(AvailabilityProjection(), ledger, url)


async def test_it_says_what_it_changed_and_again_that_there_is_nothing_left(cli: Run, url: str) -> None:
    assert (await cli("migrate")).code == 0
    assert types_of_documents(url) == {"text": ALL}
    done = await cli("migrate", "--jsonb")
    assert (done.code, types_of_documents(url)) == (0, {"jsonb": ALL})
    (changed,) = [line for line in done.err.splitlines() if line.startswith("JSON is jsonb now in ")]
    assert {f"gpuledger_live.{table}" for table in JSON_COLUMNS} == set(changed.split(" in ")[1][:-1].split(", "))
    again = await cli("migrate", "--jsonb")
    assert (again.code, again.err.splitlines()[-1]) == (0, "All JSON in tables is jsonb.")
    contradiction = await cli("migrate", "--check", "--jsonb")
    assert contradiction.code == ExitCode.USAGE
    assert "--check changes nothing, and --jsonb does" in contradiction.err


async def test_it_refuses_while_an_older_build_can_come_back(cli: Run, url: str, fresh_nats: NatsServer) -> None:
    await fold(url, fresh_nats)
    execute(url, "UPDATE gpuledger.projection SET version = version - 1")
    refused = await cli("migrate", "--jsonb")
    assert refused.code == ExitCode.ERROR
    assert "Run `gpuledger up` of this build until it has built its own." in refused.err
    assert types_of_documents(url) == {"text": ALL}


async def test_views_of_peoples_own_go_on_and_it_names_those_that_cannot(
    cli: Run, url: str, fresh_nats: NatsServer
) -> None:
    table = "gpuledger_live.resource_slice"
    for statement in (
        "CREATE SCHEMA people",
        f"CREATE VIEW people.pools AS SELECT name, payload::jsonb -> 'pool' AS pool FROM {table}",
        f"CREATE MATERIALIZED VIEW people.kept AS SELECT name, payload FROM {table}",
        "CREATE VIEW people.of_view AS SELECT count(*) AS n FROM people.pools",
        f"CREATE VIEW people.searches AS SELECT name FROM {table} WHERE payload LIKE '%%pool%%'",
        "CREATE VIEW people.of_searches AS SELECT name FROM people.searches",
    ):
        execute(url, statement)
    await fold(url, fresh_nats)
    done = await cli("migrate", "--jsonb")
    assert done.code == 0, done.err
    assert execute(url, "SELECT pool FROM people.pools") == [("n1",)]
    assert execute(url, "SELECT n FROM people.of_view") == [(1,)]
    execute(url, "REFRESH MATERIALIZED VIEW people.kept")
    assert [row[0]["pool"] for row in execute(url, "SELECT payload FROM people.kept")] == ["n1"]
    lost = "Could not be made anew after the tables below changed: people.of_searches, people.searches. The table"
    assert lost in done.err
    assert "Make these views again" in done.err
    assert lost not in (await cli("migrate", "--jsonb")).err


async def test_it_names_a_view_that_is_not_ours_to_drop_and_changes_nothing_below_it(
    cli: Run, migrator_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", migrator_url)
    for statement in (
        "CREATE VIEW people.theirs AS SELECT payload FROM gpuledger_live.resource_slice",
        f"ALTER VIEW people.theirs OWNER TO {analyst_of(database_url)}",
    ):
        execute(database_url, statement)
    refused = await cli("migrate", "--jsonb")
    assert refused.code == ExitCode.ERROR
    assert "The documents of projection availability stay text" in refused.err
    assert "view people.theirs depends on column" in refused.err
    assert "is not ours to drop. Drop it, run the command again, and make it anew." in refused.err
    assert execute(database_url, "SELECT payload FROM gpuledger_live.resource_slice") == []
    assert execute(database_url, "SELECT to_regclass('people.theirs') IS NOT NULL") == [(True,)]
    assert execute(database_url, "SELECT name FROM gpuledger.lost_view") == []
    execute(database_url, "DROP VIEW people.theirs")
    done = await cli("migrate", "--jsonb")
    assert (done.code, types_of_documents(migrator_url)) == (0, {"jsonb": ALL})


FUNCTION = """CREATE FUNCTION people.own() RETURNS bigint BEGIN ATOMIC
SELECT count(*) FROM gpuledger_live.resource_slice WHERE payload <> ''; END"""
TRIGGER = """CREATE TRIGGER own BEFORE UPDATE OF payload ON gpuledger_live.resource_slice
FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"""


@pytest.mark.parametrize("statement", [FUNCTION, TRIGGER], ids=["function", "trigger"])
async def test_it_names_what_else_of_peoples_own_reads_a_document(cli: Run, url: str, statement: str) -> None:
    execute(url, "CREATE SCHEMA people")
    execute(url, statement)
    refused = await cli("migrate", "--jsonb")
    assert refused.code == ExitCode.ERROR
    assert "own" in refused.err
    assert "depends on column payload" in refused.err.replace('"', "")
    assert "view" not in refused.err


async def test_a_table_that_takes_too_long_stays_as_it_was(
    cli: Run, url: str, fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contraction, "CONVERSION_MAX_S", 1)
    execute(url, "CREATE SCHEMA people")
    execute(
        url,
        "CREATE FUNCTION people.slow(anyelement) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN "
        f"IF pg_typeof($1) = 'jsonb'::regtype THEN PERFORM pg_sleep({NEVER_S}); END IF; RETURN ''; END $$",
    )
    execute(url, "CREATE INDEX ON gpuledger_live.resource_slice (people.slow(payload))")
    await fold(url, fresh_nats)
    refused = await cli("migrate", "--jsonb")
    assert refused.code == ExitCode.ERROR
    assert "to write a table anew takes more than 1 s. `gpuledger replay availability`" in refused.err
    kind = "SELECT data_type FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
    kind += " AND column_name = %s"
    assert execute(url, kind, "gpuledger_live", "resource_slice", "payload") == [("text",)]
