"""A database and a ledger that an earlier build recorded open with this build, and every row equals a fold of the log.

A change to a fold fails here unless the projection gets a new version, and a migration fails if it loses rows.
"""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import orjson
import pytest

from gpuledger.events.envelope import Decoded, decode, encode, nats_subject_of
from gpuledger.events.errors import EventError
from gpuledger.events.position import number_of
from gpuledger.events.source import SourcePositionSkipped, SourceRejected
from gpuledger.tools.queries.backend import all_projections
from support.cli import Cli
from support.ledgers import everything, jetstream_ledger
from support.projections import execute
from support.recordings import Recording, recordings

REPLAYS = frozenset(
    {"allocations", "availability", "bootstrap", "devices", "inventory", "pools", "sources", "workloads"}
)
"""The projections that need a replay after this build's migrations; the CHANGELOG names them."""

ROLLED_BACK = "devices"
"""A projection with a replay in the recording: the database also holds its rows from before that replay."""

BOOKKEEPING = ("decider", "outbox", "projection", "seen")

pytestmark = pytest.mark.parametrize("recording", recordings(), ids=lambda one: one.folder.name)


class Opened(NamedTuple):
    """A recording on running servers, which the environment names to every command."""

    url: str
    head: int


@pytest.fixture
async def opened(recording: Recording, database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opened]:
    recording.load_database(database_url)
    with recording.nats_server() as server:
        async with jetstream_ledger(server.url) as ledger:
            recorded = await everything(ledger)
        assert recorded == recording.messages()
        monkeypatch.setenv("NATS_URL", server.url)
        monkeypatch.setenv("DATABASE_URL", database_url)
        yield Opened(database_url, len(recorded))


def test_a_recorded_database_is_migrated_and_every_row_agrees_with_the_recorded_log(
    opened: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(capsys)
    columns = columns_of(opened.url)
    rows, checkpoints = counts(opened.url), bookkeeping(opened.url, columns)
    assert cli("migrate").code == 0
    assert counts(opened.url) == rows
    assert bookkeeping(opened.url, columns) == checkpoints
    assert outdated(opened.url) == REPLAYS
    for name in sorted(REPLAYS):
        assert cli("replay", name).code == 0
    assert min(positions(opened.url)) < opened.head
    verified = cli("verify", "-o", "json")
    assert verified.code == 0, verified.err
    assert len(verified.json()) == len(all_projections())
    assert min(positions(opened.url)) >= opened.head
    if ROLLED_BACK not in REPLAYS:
        assert cli("replay", ROLLED_BACK, "--rollback").code == 0
        assert cli("verify", ROLLED_BACK).code == 0


def test_every_recorded_event_still_has_its_type_its_subject_and_its_fields(recording: Recording) -> None:
    refused, undecodable = set[int](), set[int]()
    for message in recording.messages():
        try:
            event = decode(message.data)
        except EventError:
            undecodable.add(number_of(message.sequence))
            continue
        if isinstance(event.data, SourceRejected | SourcePositionSkipped):
            refused.add(event.data.sequence)
        assert nats_subject_of(event) == message.subject
        assert is_kept(orjson.loads(message.data), document_of(event)), message
    assert undecodable <= refused


def document_of(event: Decoded) -> Any:
    """The event as this build records it; upcasters have brought its data to the newest version."""
    return orjson.loads(encode(event))


def is_kept(before: Any, now: Any) -> bool:
    """Whether everything that a document had is still there; it may have more by now."""
    if isinstance(before, dict) and isinstance(now, dict):
        return all(key in now and is_kept(value, now[key]) for key, value in before.items())
    return bool(before == now)


def counts(url: str) -> Counter[tuple[str, int]]:
    """For each schema and row count, the number of tables: a migration may rename a table, but not lose a row."""
    tables = execute(
        url, "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('gpuledger_live', 'gpuledger_prev')"
    )
    rows = [(schema, execute(url, f"SELECT count(*) FROM {schema}.{name}")[0][0]) for schema, name in tables]
    return Counter(one for one in rows if one[1])


def columns_of(url: str) -> dict[str, str]:
    """The columns of each table of the bookkeeping; a migration may add some."""
    query = (
        "SELECT string_agg(column_name, ', ' ORDER BY ordinal_position) FROM information_schema.columns "
        "WHERE table_schema = 'gpuledger' AND table_name = %s"
    )
    return {name: execute(url, query, name)[0][0] for name in BOOKKEEPING}


def bookkeeping(url: str, columns: dict[str, str]) -> dict[str, list[tuple[Any, ...]]]:
    """Checkpoints, the sources' last numbers, and the decisions that wait in the outbox."""
    return {name: sorted(execute(url, f"SELECT {columns[name]} FROM gpuledger.{name}"), key=str) for name in columns}


def positions(url: str) -> list[int]:
    """The checkpoint of each projection's live rows."""
    return [
        position for (position,) in execute(url, "SELECT position FROM gpuledger.projection WHERE edition = 'live'")
    ]


def outdated(url: str) -> set[str]:
    """The projections whose rows this version cannot take over; those that are new have none."""
    versions = dict(execute(url, "SELECT name, version FROM gpuledger.projection WHERE edition = 'live'"))
    return {one.name for one in all_projections() if not one.takes_over(versions.get(one.name, one.version))}
