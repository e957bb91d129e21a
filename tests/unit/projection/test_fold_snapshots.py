"""What becomes of snapshots that are damaged, of another log, or not needed any more."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.table import Key, Sum, TableSpec
from gpuledger.events.position import Position, number_of
from gpuledger.projection.fold_snapshots.buckets import BUCKETS_MAX, ROWS_PER_BUCKET, bucket_count, bucket_of
from gpuledger.projection.fold_snapshots.check import check_snapshots
from gpuledger.projection.fold_snapshots.manifest import Place, fold_key, pieces_folder
from gpuledger.projection.fold_snapshots.parquet import arrow_of, decode_piece, encode_piece, rows_of
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.projection.fold_snapshots.retention import PIECE_AGE_MIN, SnapshotRetention, collect, kept
from gpuledger.projection.fold_snapshots.taking import Hearers, take_snapshots
from gpuledger.projection.fold_snapshots.writer import FoldSnapshotSettings
from gpuledger.projection.replay import skipped_positions
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.objects import ObjectsUnavailableError
from support.fold_snapshots import CountingLedger, MemoryObjects, from_snapshot, from_start, recorded_messages

DEVICES = DevicesProjection()
MESSAGES = len(recorded_messages())
EARLIER = 200
START = datetime(2026, 1, 1, tzinfo=UTC)


class Taken:
    """Two snapshots of `devices`, and what their reader refuses."""

    def __init__(self) -> None:
        self.ledger, self.objects = CountingLedger(recorded_messages()), MemoryObjects()
        self.refused: list[str] = []
        self.snapshots = FoldSnapshots(self.objects, self.ledger, self.refused.append)
        self.stops: list[Exception] = []

    async def take(self, messages: Sequence[object] | None = None) -> None:
        """At `EARLIER`, and at the head."""
        for until in (EARLIER, MESSAGES):
            part = CountingLedger(recorded_messages()[:until])
            await take_snapshots(
                [DEVICES],
                part,
                FoldSnapshots(self.objects, part, self.refused.append),
                Hearers(lambda _: None, self.stops.append),
                settings=FoldSnapshotSettings(),
                also_last=True,
            )

    async def begins(self) -> int | None:
        """Where a fold up to the head begins; it is right in any case."""
        skipped = await skipped_positions(self.ledger)
        loaded = await self.snapshots.load(DEVICES, MESSAGES, skipped)
        if loaded is None:
            return None
        assert await from_snapshot(DEVICES, self.ledger, self.snapshots, MESSAGES) == await from_start(
            DEVICES, self.ledger, MESSAGES
        )
        return number_of(loaded.manifest.anchor.sequence)

    def manifest(self, sequence: int) -> str:
        """The object of a manifest."""
        return next(key for key in self.objects.objects if f"/{sequence:020d}-" in key)

    def last_pieces(self) -> list[str]:
        """The pieces that only the last snapshot has."""
        earlier, last = (self.objects.objects[self.manifest(one)].decode() for one in (EARLIER, MESSAGES))
        digests = [(key, key.rpartition("/")[2].partition(".")[0]) for key in self.objects.objects]
        return [key for key, digest in digests if digest in last and digest not in earlier]


@pytest.fixture
async def taken() -> Taken:
    found = Taken()
    await found.take()
    assert await found.begins() == MESSAGES
    assert not found.refused
    return found


async def test_a_damaged_manifest_is_refused_and_the_one_before_is_used(taken: Taken) -> None:
    taken.objects.objects[taken.manifest(MESSAGES)] += b" "
    assert await taken.begins() == EARLIER
    assert taken.refused[0] == f"The snapshot of devices at 1/{MESSAGES} is not used: It is not what was written."


@pytest.mark.parametrize("damage", [b"", b"PAR1", None])
async def test_a_damaged_or_missing_piece_is_refused_and_the_one_before_is_used(
    damage: bytes | None, taken: Taken
) -> None:
    piece = taken.last_pieces()[0]
    if damage is None:
        del taken.objects.objects[piece]
    else:
        taken.objects.objects[piece] = damage
    assert await taken.begins() == EARLIER
    assert f"The snapshot of devices at 1/{MESSAGES} is not used" in taken.refused[0]


async def test_a_snapshot_of_another_log_is_refused(taken: Taken) -> None:
    other = recorded_messages()[: MESSAGES - 1]
    restored = recorded_messages()[0]._replace(sequence=MESSAGES)
    taken.ledger._messages[:] = [*other, restored]
    assert await taken.begins() == EARLIER
    assert f"another event stands at 1/{MESSAGES}" in taken.refused[0]


async def test_no_snapshot_of_another_ledger_is_even_looked_at(taken: Taken) -> None:
    taken.ledger._identity = taken.ledger.identity._replace(ledger_id="another")
    assert await taken.begins() is None
    assert not taken.refused


async def test_a_skip_that_was_decided_later_refuses_what_is_behind_it(taken: Taken) -> None:
    skipped = [Position(1, EARLIER + 5)]
    loaded = await taken.snapshots.load(DEVICES, MESSAGES, skipped)
    assert loaded is not None
    assert number_of(loaded.manifest.anchor.sequence) == EARLIER
    assert "Operators decided since to pass over another position before it." in taken.refused[0]


async def test_a_store_that_is_away_leaves_the_fold_from_the_start(
    taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_key: str) -> bytes:
        raise ObjectsUnavailableError("The object store is away.")

    monkeypatch.setattr(taken.objects, "get", away)
    assert await taken.begins() is None
    assert taken.refused == ["The object store is away."]


async def test_what_did_not_change_is_not_written_again(taken: Taken) -> None:
    before = set(taken.objects.objects)
    await taken.take()
    assert set(taken.objects.objects) == before


async def test_only_the_tables_that_somebody_needs_become_rows(taken: Taken) -> None:
    loaded = await taken.snapshots.load(DEVICES, MESSAGES, [])
    assert loaded is not None
    tables = loaded.fold.state.tables()
    assert not any(table.is_loaded for table in tables.values())
    assert len(tables["device"])
    assert [name for name, table in tables.items() if table.is_loaded] == ["device"]
    written = await taken.snapshots.load(DEVICES, MESSAGES, [], is_written=True)
    assert written is not None
    assert all(table.is_loaded for table in written.fold.state.tables().values())


async def test_installations_that_ended_are_read_back_where_every_row_is_asked_for(taken: Taken) -> None:
    whole = await taken.snapshots.load(DEVICES, MESSAGES, [], whole=["installation"])
    loaded = await taken.snapshots.load(DEVICES, MESSAGES, [])
    assert whole is not None
    assert loaded is not None
    every, table = (one.fold.state.tables()["installation"] for one in (whole, loaded))
    assert any(row.valid_to is not None for row in every.rows.values())
    assert table.rows == {key: row for key, row in every.rows.items() if row.valid_to is None}


async def test_rows_are_found_by_key(taken: Taken) -> None:
    loaded = await taken.snapshots.load(DEVICES, EARLIER, [])
    assert loaded is not None
    table = loaded.fold.state.tables()["device"]
    keys = list(table.rows)[:3]
    found = await taken.snapshots.rows(DEVICES, loaded.manifest, "device", [*keys, "no such device"])
    assert sorted(found) == sorted(table.rows[key] for key in keys)


async def test_a_snapshot_that_is_not_what_the_log_says_is_found(taken: Taken) -> None:
    ours = fold_key(DEVICES, taken.ledger.identity)
    place = Place(MESSAGES, START)
    manifest = await taken.snapshots.pieces(DEVICES).manifest(
        next(one for one in await taken.snapshots.pieces(DEVICES).places() if number_of(one.sequence) == MESSAGES)
    )
    wrong = manifest._replace(events=manifest.events + 1)
    await taken.snapshots.pieces(DEVICES).write_manifest(wrong)
    found = [one async for one in check_snapshots(DEVICES, taken.ledger, taken.snapshots)]
    assert [one.is_right for one in found] == [True, False]
    assert (found[1].differences, found[1].first) == (1, "events/counted")
    assert ours.manifest_key(place).startswith(ours.folder)


async def test_collecting_keeps_what_is_needed(taken: Taken) -> None:
    ledger_id, folders = taken.ledger.identity.ledger_id, [fold_key(DEVICES, taken.ledger.identity).folder]
    orphan = f"{pieces_folder(ledger_id)}/ab/{'ab' * 32}.parquet"
    now = taken.objects.now + PIECE_AGE_MIN
    await taken.objects.put(orphan, b"1")
    before = set(taken.objects.objects)
    collected = await collect(taken.objects, ledger_id, folders, now - timedelta(seconds=1), SnapshotRetention())
    assert (collected.manifests, collected.pieces) == (0, 0), "the orphan may be of a snapshot under way"
    collected = await collect(taken.objects, ledger_id, folders, now, SnapshotRetention())
    assert (collected.manifests, collected.pieces, collected.bytes) == (0, 1, 1)
    assert set(taken.objects.objects) == before - {orphan}
    await collect(taken.objects, ledger_id, folders, now, SnapshotRetention(last=1, days=0, months=0))
    assert await taken.begins() == MESSAGES
    assert len([key for key in taken.objects.objects if key.endswith(".json")]) == 1
    await collect(taken.objects, ledger_id, [], now + timedelta(days=29), SnapshotRetention())
    assert await taken.begins() == MESSAGES, "a build beside this one, or a rollback, may need it"
    await collect(taken.objects, ledger_id, [], now + timedelta(days=31), SnapshotRetention())
    assert not taken.objects.objects


def test_the_last_are_kept_then_one_a_day_then_one_a_month() -> None:
    places = [Place(number, START + timedelta(hours=6 * number)) for number in range(1, 400)]
    staying = sorted(number_of(one.sequence) for one in kept(places, SnapshotRetention(last=3, days=2, months=3)))
    assert staying == [235, 359, 395, 397, 398, 399], (
        "hours 6 to 2,394: ends of February and March, the last but one day"
    )
    assert kept(places[:1], SnapshotRetention(last=0, days=0, months=0)) == set(places[:1])


@given(st.integers(0, 10_000_000), st.integers(0, 1_024))
def test_buckets_are_a_power_of_two_and_not_too_full(rows: int, before: int) -> None:
    before = 1 << before.bit_length() >> 1
    count = bucket_count(rows, before)
    assert count & (count - 1) == 0
    assert 1 <= count <= BUCKETS_MAX
    assert rows <= 2 * ROWS_PER_BUCKET * count or count == BUCKETS_MAX
    assert bucket_count(rows, count) == count


keys = st.one_of(st.text(), st.integers(), st.datetimes(timezones=st.just(UTC)))


@given(st.one_of(keys, st.tuples(keys, keys)), st.integers(0, 10))
def test_equal_keys_are_in_one_bucket(key: Key, power: int) -> None:
    assert 0 <= bucket_of(key, 1 << power) < 1 << power
    if isinstance(key, datetime):
        elsewhere = key.replace(tzinfo=UTC)
        assert bucket_of(key, 1 << power) == bucket_of(elsewhere, 1 << power)


def test_every_type_of_column_comes_back() -> None:
    for table in DEVICES.new_state().tables().values():
        columns = arrow_of(table.spec, [])
        assert rows_of(table.spec, decode_piece(encode_piece(columns))) == []


class _Kinds(NamedTuple):
    key: str
    text: str | None
    number: int | None
    at: datetime | None
    flag: bool | None
    total: Sum | None


TIMES = st.datetimes(timezones=st.just(UTC))
OF_KINDS = st.builds(
    _Kinds,
    st.text(),
    st.none() | st.text(),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | TIMES | TIMES.map(lambda time: time.replace(microsecond=0)),
    st.none() | st.booleans(),
    st.none() | st.integers().map(Sum),
)


@given(st.lists(OF_KINDS) | st.lists(st.builds(_Kinds, *[st.text(), *[st.none()] * 5])))
def test_rows_come_back_from_their_piece(rows: list[_Kinds]) -> None:
    spec = TableSpec("kinds", _Kinds, ("key",))
    found = rows_of(spec, decode_piece(encode_piece(arrow_of(spec, rows))))
    assert found == rows
    assert all(type(row) is _Kinds and (row[3] is None or row[3].tzinfo is UTC) for row in found)


def test_columns_of_a_piece_stand_in_the_order_of_their_names() -> None:
    spec = TableSpec("kinds", _Kinds, ("key",))
    piece = encode_piece(arrow_of(spec, [_Kinds("a", "b", 1, None, None, None)]))
    # Pairs, because dictionaries are equal in any order.
    assert list(decode_piece(piece, ["number", "key"]).to_pydict().items()) == [("number", [1]), ("key", ["a"])]
