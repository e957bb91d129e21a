"""Views that people made on ours survive migrations, rebuilds and rollbacks, and follow the tables that serve."""

from collections.abc import Iterator

import psycopg
import pytest

from gpuledger.db.engine import connect
from gpuledger.db.migrate import migrate
from gpuledger.db.views import READER_ROLE, keep_views_statements, recreate_views
from gpuledger.events.device import DeviceInserted
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.rebuild import rebuild, rollback
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools.own_views import lost_views, lost_views_text
from support.events import event
from support.projections import QUICK, execute, publish

VIEWS = ("people.of_report", "people.of_function", "people.of_table", "people.of_view", "report.mine", "people.counted")


@pytest.fixture
def url(migrated_url: str) -> Iterator[str]:
    owner = f"analyst_{psycopg.conninfo.conninfo_to_dict(migrated_url)['dbname']}"
    with psycopg.connect(migrated_url) as connection:
        for statement in (
            f"CREATE ROLE {owner}",
            "CREATE SCHEMA people",
            "CREATE VIEW people.of_report AS SELECT devices AS n FROM report.fleet",
            "CREATE VIEW people.of_function AS SELECT count(*) AS n FROM report.devices_at(now())",
            "CREATE VIEW people.of_table WITH (security_barrier) AS SELECT count(*) AS n FROM gpuledger_live.device",
            "CREATE VIEW people.of_view AS SELECT of_report.n FROM people.of_report JOIN people.of_table USING (n)",
            "CREATE VIEW report.mine AS SELECT n FROM people.of_view",
            "CREATE MATERIALIZED VIEW people.counted AS SELECT n FROM report.mine",
            "CREATE UNIQUE INDEX counted_n ON people.counted (n)",
            "COMMENT ON VIEW people.of_view IS 'it''s ours'",
            "COMMENT ON COLUMN people.of_view.n IS 'how many'",
            f"GRANT SELECT ON people.of_view TO {READER_ROLE}",
            f"GRANT USAGE, CREATE ON SCHEMA people TO {owner}",
            f"GRANT SELECT ON people.of_report, people.of_table TO {owner}",
            f"ALTER VIEW people.of_view OWNER TO {owner}",
        ):
            connection.execute(statement.encode())
    yield migrated_url
    with psycopg.connect(migrated_url) as connection:
        connection.execute(f"DROP OWNED BY {owner} CASCADE".encode())
        connection.execute(f"DROP ROLE {owner}".encode())


def described(url: str) -> list[tuple[object, ...]]:
    """All that a view is, beside its rows."""
    return execute(
        url,
        "SELECT oid::regclass::text, pg_get_viewdef(oid), relkind, relowner, relacl::text, reloptions, "
        "obj_description(oid, 'pg_class'), col_description(oid, 1), "
        "ARRAY(SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = pg_class.oid) "
        "FROM pg_class WHERE oid = ANY(%s::regclass[]) ORDER BY 1",
        list(VIEWS),
    )


def answers(url: str) -> list[int]:
    """How many devices each view counts."""
    execute(url, "REFRESH MATERIALIZED VIEW people.counted")
    return [execute(url, f"SELECT n FROM {view}")[0][0] for view in VIEWS]


async def test_they_are_the_same_after_a_migration_rebuilds_and_a_rollback(url: str) -> None:
    ledger, projection = MemoryLedger(), DevicesProjection()
    before = described(url)
    assert len(before) == len(VIEWS)
    devices = [event(DeviceInserted(slot=f"s{number}"), f"d{number}", number=number) for number in (1, 2, 3)]
    await Runner(projection, ledger, url, settings=QUICK).catch_up(await publish(ledger, devices[:1]))
    execute(url, "COMMENT ON SCHEMA report IS 'of another build'")
    migrate(url)
    assert (described(url), answers(url)) == (before, [1] * len(VIEWS))
    for count in (2, 3):
        head = await publish(ledger, devices[count - 1 : count])
        await rebuild(projection, ledger, url)
        await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
        assert (described(url), answers(url)) == (before, [count] * len(VIEWS))
    await rollback(projection, url)
    assert (described(url), answers(url)) == (before, [2] * len(VIEWS))
    assert execute(url, "SELECT name FROM gpuledger.lost_view") == []


async def test_one_that_cannot_be_made_again_is_noted_with_its_definition_and_stops_nothing(url: str) -> None:
    execute(url, "CREATE FUNCTION report.of_another_build() RETURNS bigint LANGUAGE sql RETURN 1")
    execute(url, "CREATE VIEW people.lost AS SELECT report.of_another_build() AS n")
    with psycopg.connect(url) as connection:
        recreate_views(connection)
    ((name, definition, reason),) = execute(url, "SELECT name, definition, reason FROM gpuledger.lost_view")
    assert (name, definition.split()) == ("people.lost", ["SELECT", "report.of_another_build()", "AS", "n;"])
    assert "of_another_build() does not exist" in reason
    assert answers(url) == [0] * len(VIEWS)
    async with connect(url, application_name="test") as connection:
        text = lost_views_text(await lost_views(connection))
    assert text.startswith("Could not be made anew after the tables below changed: people.lost. The table")


def test_one_that_cannot_be_given_back_to_its_owner_is_not_made(url: str) -> None:
    """Else a view would read with the rights of whoever migrates."""
    execute(
        url, "CREATE FUNCTION people.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$"
    )
    execute(
        url,
        "CREATE EVENT TRIGGER refuse ON ddl_command_end WHEN TAG IN ('ALTER TABLE', 'ALTER VIEW') "
        "EXECUTE FUNCTION people.refuse()",
    )
    with psycopg.connect(url) as connection:
        recreate_views(connection)
    assert execute(url, "SELECT to_regclass('people.of_report')") == [(None,)]
    assert ("people.of_report", "no") in execute(url, "SELECT name, reason FROM gpuledger.lost_view")


def test_one_that_is_not_ours_to_drop_is_noted_as_reading_the_rows_of_before(url: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    migrator = f"migrator_{name}"
    execute(url, f"CREATE ROLE {migrator} LOGIN PASSWORD 'secret'")
    with psycopg.connect(url) as connection:
        for statement in (
            f"GRANT ALL ON SCHEMA gpuledger, gpuledger_live, gpuledger_next, gpuledger_prev, report TO {migrator}",
            f"GRANT ALL ON ALL TABLES IN SCHEMA gpuledger TO {migrator}",
            f"GRANT USAGE ON SCHEMA people TO {migrator}",
            f"SET ROLE {migrator}",
        ):
            connection.execute(statement.encode())
        for text in keep_views_statements():
            connection.execute(text)
        reasons: dict[str, str] = dict(connection.execute("SELECT name, reason FROM gpuledger.lost_view").fetchall())
        connection.rollback()
    execute(url, f"DROP OWNED BY {migrator}")
    execute(url, f"DROP ROLE {migrator}")
    assert reasons["people.of_table"] == "must be owner of view of_table; it reads the rows of before"
