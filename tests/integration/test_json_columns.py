"""Documents of rows are jsonb or text, whichever their columns are: what is read is the text that was written."""

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg.sql import SQL

from gpuledger.db.engine import connect
from gpuledger.db.errors import SchemaUnknownError
from gpuledger.db.json_columns import JSON_COLUMNS, canonical_text
from gpuledger.db.locks import lock_key
from gpuledger.db.migrate import migrate
from gpuledger.db.revision import JSONB_REVISION, KNOWN_REVISIONS, OLDEST_REVISION, Schema, check_compatible, schema_of
from gpuledger.domain.dra.rows import SLICE, ResourceSlice
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.table import Changes
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.contraction import contract_documents
from gpuledger.projection.definition import Projection
from gpuledger.projection.editions import rebuild_lock
from gpuledger.projection.errors import NotContractedError, RebuildBusyError
from gpuledger.projection.rebuild import rebuild, rollback
from gpuledger.projection.rows import COPIED_ROWS_MIN, RowStore
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import AvailabilityProjection
from gpuledger.tools.own_views import lost_views
from gpuledger.tools.queries.backend import all_projections
from gpuledger.tools.queries.rows import rows_where
from support.dra_facts import allocated, device, events_of, fact_at, published, requested
from support.events import hour
from support.fold_snapshots import CountingLedger, recorded_messages
from support.json_types import as_an_older_build_left_it, types_of_documents
from support.projections import QUICK, assert_true, execute, publish, reaches, running
from support.thoroughness import examples

ALL = sum(map(len, JSON_COLUMNS.values()))
CONCERNED = [one for one in all_projections() if any(spec.name in JSON_COLUMNS for spec in one.specs)]

FACTS = [
    fact_at(1, "n1", published("n1", [device("g1"), device("g2", memory="80Gi")], node="n1")),
    fact_at(2, "ns/c1", requested()),
    fact_at(3, "ns/c1", allocated(("n1", "g1", None))),
    fact_at(4, "n1", published("n1", [device("g1", tainted=True)], node="n1", generation=2)),
]

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(-1e15, 1e15, allow_subnormal=True).map(lambda one: one + 0.0)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(params=["text", "jsonb"])
def either_url(request: pytest.FixtureRequest, url: str) -> str:
    """A database whose documents are of one type or the other."""
    return as_an_older_build_left_it(url) if request.param == "text" else url


@pytest.fixture
def text_url(url: str) -> str:
    return as_an_older_build_left_it(url)


def slice_of(name: str, payload: str) -> ResourceSlice:
    return ResourceSlice(name, "u", "d", "p", None, 1, 1, 1, 0, hour(1), payload)


@examples(0.5)
@given(documents=st.lists(DOCUMENTS, min_size=1, max_size=20))
@example(documents=[1.0, 1e15, 0.0, 5e-324, 1795367415.192349, 1e-7, 2**64 - 1, -(2**63), {"b": 1, "a": {"": []}}, ""])
def test_what_is_read_from_jsonb_is_the_text_that_was_written(
    postgres_server_url: str, documents: list[object]
) -> None:
    texts = list(map(json_text, documents))
    with psycopg.connect(postgres_server_url) as connection:
        shown = connection.execute("SELECT one::jsonb::text FROM unnest(%s::text[]) AS one", (texts,)).fetchall()
    assert [canonical_text(one) for (one,) in shown] == texts


@pytest.mark.parametrize("others", [0, COPIED_ROWS_MIN], ids=["arrays", "copied"])
async def test_rows_come_back_as_they_were(either_url: str, others: int) -> None:
    awkward = {'"': "\\", "b": [1.0, 2**53 + 1, None], "a": {"é\n": "€🙂", "{": "}", ",": "\x7f"}, "": True}
    rows = [slice_of(str(number), json_text(one)) for number, one in enumerate([awkward, {}, {"z": 1, "aa": 2}])]
    beside = [slice_of(f"x{number}", "{}") for number in range(others)]
    store = RowStore(SLICE, "gpuledger_live")
    async with connect(either_url, application_name="test") as connection:
        changed = [one._replace(payload=json_text({"y": 1, "x": [one.payload]})) for one in [*rows, *beside]]
        for changes in (Changes([*rows, *beside], [], []), Changes([], changed, [])):
            async with connection.transaction():
                await store.write(connection, changes)
            assert {row async for some in store.all(connection) for row in some} == {*changes.new, *changes.changed}
        found = await rows_where(connection, SLICE, {"name": ["0"]})
    assert [one["payload"] for one in found] == [changed[0].payload]


@pytest.mark.parametrize("projection", CONCERNED, ids=lambda projection: projection.name)
async def test_rows_of_events_of_every_type_are_proven(either_url: str, projection: Projection) -> None:
    ledger = CountingLedger(recorded_messages())
    await rebuild(projection, ledger, either_url)
    await assert_true(ledger, either_url, [projection])
    await rebuild(projection, ledger, either_url)
    await rollback(projection, either_url)
    await assert_true(ledger, either_url, [projection])


async def test_a_new_database_has_jsonb_and_refuses_builds_of_before(url: str) -> None:
    assert types_of_documents(url) == {"jsonb": ALL}
    assert_refuses_builds_of_before(url)


def assert_refuses_builds_of_before(url: str) -> None:
    with psycopg.connect(url) as connection:
        schema = schema_of(connection)
    assert schema == Schema(KNOWN_REVISIONS[-1], JSONB_REVISION)
    with pytest.MonkeyPatch.context() as patch:
        before = KNOWN_REVISIONS[: KNOWN_REVISIONS.index(JSONB_REVISION)]
        patch.setattr("gpuledger.db.revision.KNOWN_REVISIONS", before)
        with pytest.raises(SchemaUnknownError, match=f"only builds from revision {JSONB_REVISION} on work with it"):
            check_compatible(schema)


async def test_documents_become_jsonb_beside_a_writer_that_goes_on(text_url: str) -> None:
    ledger, projection = MemoryLedger(), AvailabilityProjection()
    events = events_of(FACTS)
    async with running(Runner(projection, ledger, text_url, settings=QUICK)) as [task]:
        await reaches(text_url, projection.name, await publish(ledger, events[:3]))
        changed = await contract_documents(all_projections(), text_url)
        await reaches(text_url, projection.name, await publish(ledger, events[3:]))
        assert not task.done()
    assert len(changed) == len(JSON_COLUMNS)
    assert types_of_documents(text_url) == {"jsonb": ALL}
    await assert_true(ledger, text_url, [projection])
    assert execute(text_url, "SELECT payload -> 'pool_generation' FROM gpuledger_live.resource_slice") == [(2,)]
    assert_refuses_builds_of_before(text_url)
    assert await contract_documents(all_projections(), text_url) == []
    assert migrate(text_url).from_revision is not None
    assert_refuses_builds_of_before(text_url)


async def test_rows_of_before_a_rebuild_become_jsonb_as_well(text_url: str) -> None:
    ledger, projection = MemoryLedger(), AvailabilityProjection()
    await publish(ledger, events_of(FACTS))
    await rebuild(projection, ledger, text_url)
    await rebuild(projection, ledger, text_url)
    assert types_of_documents(text_url) == {"text": ALL}
    changed = await contract_documents([projection], text_url)
    assert "gpuledger_prev.resource_slice" in changed
    assert set(types_of_documents(text_url, "gpuledger_prev")) == {"jsonb"}
    await rollback(projection, text_url)
    await assert_true(ledger, text_url, [projection])


async def test_a_rebuild_makes_jsonb_where_older_builds_are_given_up(text_url: str) -> None:
    ledger, projection = MemoryLedger(), AvailabilityProjection()
    await publish(ledger, events_of(FACTS))
    await rebuild(projection, ledger, text_url)
    execute(text_url, Schema(None, OLDEST_REVISION).noting(JSONB_REVISION).decode())
    await rebuild(projection, ledger, text_url)
    assert types_of_documents(text_url)["jsonb"] == 5
    assert types_of_documents(text_url, "gpuledger_prev") == {"text": 5}
    await assert_true(ledger, text_url, [projection])


@pytest.mark.parametrize(
    ("edition", "what"), [("live", "Run `gpuledger up` of this build"), ("prev", "kept for a rollback")]
)
async def test_rows_of_another_version_are_left_to_the_older_build(text_url: str, edition: str, what: str) -> None:
    ledger, projection = MemoryLedger(), AvailabilityProjection()
    await publish(ledger, events_of(FACTS))
    await rebuild(projection, ledger, text_url)
    await rebuild(projection, ledger, text_url)
    execute(text_url, "UPDATE gpuledger.projection SET version = version - 1 WHERE edition = %s", edition)
    with pytest.raises(NotContractedError, match=what):
        await contract_documents(all_projections(), text_url)
    assert types_of_documents(text_url) == {"text": ALL}
    with psycopg.connect(text_url) as connection:
        assert schema_of(connection).oldest == OLDEST_REVISION


async def test_a_rebuild_and_a_query_that_hold_the_tables_are_left_alone(
    text_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuledger.db.locks.LOCK_WAIT_MAX_S", 0.1)
    with psycopg.connect(text_url) as connection:
        connection.execute("SELECT FROM gpuledger_live.resource_slice")
        with pytest.raises(NotContractedError, match="End that query, and run it again"):
            await contract_documents([AvailabilityProjection()], text_url)
    assert types_of_documents(text_url) == {"text": ALL}
    async with connect(text_url, application_name="test") as another:
        key = "SELECT pg_advisory_lock(%s)"
        await another.execute(key, [lock_key(rebuild_lock(AvailabilityProjection()))])
        with pytest.raises(RebuildBusyError, match="A rebuild of projection availability is running"):
            await contract_documents([AvailabilityProjection()], text_url)
    assert await contract_documents([AvailabilityProjection()], text_url)


async def test_views_that_read_documents_as_jsonb_go_on(text_url: str) -> None:
    casts = SQL("CREATE VIEW people.casts AS SELECT name, payload::jsonb -> 'pool' AS pool FROM gpuledger_live.{}")
    for statement in (
        "CREATE SCHEMA people",
        casts.format(SQL("resource_slice")).as_string(),
        "CREATE VIEW people.whole AS SELECT * FROM gpuledger_live.resource_slice",
        "CREATE VIEW people.searches AS SELECT name FROM gpuledger_live.resource_slice WHERE payload LIKE '%pool%'",
        "CREATE INDEX by_pool ON gpuledger_live.resource_slice ((payload::jsonb -> 'pool'))",
    ):
        execute(text_url, statement.replace("%", "%%"))
    ledger, projection = MemoryLedger(), AvailabilityProjection()
    await Runner(projection, ledger, text_url, settings=QUICK).catch_up(await publish(ledger, events_of(FACTS)))
    assert execute(text_url, "SELECT pool FROM people.casts") == [("n1",)]
    await contract_documents([projection], text_url)
    assert execute(text_url, "SELECT pool FROM people.casts") == [("n1",)]
    assert [row[-1]["pool"] for row in execute(text_url, "SELECT * FROM people.whole")] == ["n1"]
    assert "by_pool" in str(execute(text_url, "SELECT indexname FROM pg_indexes WHERE tablename = 'resource_slice'"))
    async with connect(text_url, application_name="test") as connection:
        assert await lost_views(connection) == ["people.searches"]
