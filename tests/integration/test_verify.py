"""Verifying: every difference between log and tables is found, and the first one named by its key."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime

import pytest

from gpuledger.events.device import DeviceFailed, DeviceInserted
from gpuledger.events.position import ORIGIN, Offset, Position, is_after
from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import Message
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.errors import GenerationMismatchError, NotBuiltError, VersionError
from gpuledger.projection.rebuild import rebuild, rollback
from gpuledger.projection.runner import Runner
from gpuledger.projection.verify import Verification, verify
from gpuledger.readmodels.projections import DevicesProjection
from support.events import event, hour
from support.ledger_double import LedgerDouble
from support.projections import QUICK, dead_rows_kept, execute, publish

HEAD = 8


@pytest.fixture
async def url(ledger: JetStreamLedger, migrated_url: str) -> str:
    facts = [event(DeviceInserted(slot=f"s{number}"), f"d{number}", number=number, at=number) for number in range(1, 6)]
    facts += [
        event(DeviceFailed(kind="DBE"), "d1", number=number, at=number, event_id=f"f{number}") for number in (6, 7, 8)
    ]
    await Runner(DevicesProjection(), ledger, migrated_url, settings=QUICK).catch_up(await publish(ledger, facts))
    return migrated_url


class Interrupted(LedgerDouble):
    """The ledger, with something that happens while its history is folded."""

    def __init__(self, ledger: JetStreamLedger, happens: Callable[[], Awaitable[None]]) -> None:
        super().__init__(ledger)
        self._happens = happens

    async def history(
        self, after: Offset = ORIGIN, until: Offset | None = None, subject_filter: str = ALL
    ) -> AsyncIterator[list[Message]]:
        async for batch in super().history(after, until, subject_filter):
            if subject_filter == ALL:
                await self._happens()
            yield batch


async def verified(ledger: JetStreamLedger, url: str) -> Verification:
    return await verify(DevicesProjection(), ledger, url)


async def test_rows_that_are_true_have_no_difference(ledger: JetStreamLedger, url: str) -> None:
    assert await verified(ledger, url) == Verification("devices", Position(1, HEAD), 5 + 5 + 3 + 5 + 5 + 5, 0, None)


async def test_a_row_that_was_changed_is_named(ledger: JetStreamLedger, url: str) -> None:
    execute(url, "UPDATE gpuledger_live.device SET failures = 7 WHERE device IN ('d3', 'd4')")
    found = await verified(ledger, url)
    assert found.differences == 2
    assert found.first is not None
    assert (found.first.table, found.first.key) == ("device", ("d3",))
    assert found.first.expected is not None
    assert found.first.found is not None
    assert found.first.found == (*found.first.expected[:11], 7, *found.first.expected[12:])


async def test_a_row_that_was_deleted_is_named(ledger: JetStreamLedger, url: str) -> None:
    execute(url, "DELETE FROM gpuledger_live.failure WHERE event_id = 'f7'")
    found = await verified(ledger, url)
    assert (found.differences, found.first and found.first.key) == (1, ("/import/titan", "e1", 7))
    assert found.first is not None
    assert found.first.found is None
    assert found.first.expected is not None


async def test_a_row_without_an_event_is_named(ledger: JetStreamLedger, url: str) -> None:
    execute(
        url,
        "INSERT INTO gpuledger_live.installation (device, slot, valid_from, retired, source, epoch) "
        "VALUES ('d1', 's9', %s, false, 'me', 'now')",
        hour(3),
    )
    found = await verified(ledger, url)
    assert found.differences == 1
    assert found.first is not None
    assert (found.first.table, found.first.key, found.first.expected) == ("installation", ("d1", "s9", hour(3)), None)


async def test_a_database_in_another_time_zone_differs_in_nothing(ledger: JetStreamLedger, url: str) -> None:
    name = url.rsplit("/", 1)[1]
    execute(url, f"ALTER DATABASE {name} SET timezone = 'Asia/Kathmandu'")
    assert (await verified(ledger, url)).differences == 0
    head = await publish(ledger, [event(DeviceInserted(slot="s1"), "d9", number=9, at=0)])
    await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(head)
    assert (await verified(ledger, url)).differences == 0


@pytest.mark.parametrize(
    ("zone", "times"),
    [
        ("America/New_York", ["2016-11-06T05:30:00Z", "2016-11-06T06:30:00Z"]),
        ("Asia/Tokyo", ["9999-12-31T23:30:00Z"]),
    ],
)
async def test_the_zone_of_the_environment_changes_nothing(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch, zone: str, times: list[str]
) -> None:
    monkeypatch.setenv("PGTZ", zone)
    facts = [
        event(DeviceInserted(slot=f"z{number}"), "d9", number=number)._replace(time=datetime.fromisoformat(time))
        for number, time in enumerate(times, 9)
    ]
    await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(await publish(ledger, facts))
    assert (await verified(ledger, url)).differences == 0
    late = facts[0]._replace(id="again", number=20)
    await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(await publish(ledger, [late]))
    assert (await verified(ledger, url)).differences == 0


async def test_a_rebuild_meanwhile_does_not_disturb(ledger: JetStreamLedger, url: str) -> None:
    rebuilt: list[int] = []

    async def once() -> None:
        if not rebuilt:
            rebuilt.append(1)
            await rebuild(DevicesProjection(), ledger, url)

    assert (await verified(Interrupted(ledger, once), url)).differences == 0
    assert rebuilt


async def test_rows_of_before_a_rebuild_that_come_back_meanwhile_do_not_disturb(
    ledger: JetStreamLedger, url: str
) -> None:
    older: list[Offset] = []
    await rebuild(DevicesProjection(), ledger, url)
    head = await publish(ledger, [event(DeviceFailed(kind="DBE"), "d1", number=9, at=9)])
    await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(head)

    async def once() -> None:
        if not older:
            older.append((await rollback(DevicesProjection(), url)).position)

    found = await verified(Interrupted(ledger, once), url)
    assert (found.position.sequence, found.differences) == (HEAD, 0)
    assert older == [HEAD]


async def test_verifying_follows_rows_that_move_on(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuledger.projection.verify.FOLDED_IN_SNAPSHOT_MAX", 0)
    moved: list[int] = []

    async def move() -> None:
        if len(moved) < 5:
            number = HEAD + 1 + len(moved)
            moved.append(await publish(ledger, [event(DeviceFailed(kind="DBE"), "d1", number=number, at=number)]))
            await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(moved[-1])

    found = await verified(Interrupted(ledger, move), url)
    assert (found.position.sequence, found.differences) == (moved[-1], 0)
    assert len(moved) == 5


async def test_verifying_ends_beside_rows_that_never_stand_still(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuledger.projection.verify.FOLDED_IN_SNAPSHOT_MAX", 0)
    monkeypatch.setattr("gpuledger.projection.verify.CATCH_UP_ROUNDS_MAX", 3)
    moved: list[int] = []

    async def move() -> None:
        number = HEAD + 1 + len(moved)
        moved.append(await publish(ledger, [event(DeviceFailed(kind="DBE"), "d1", number=number, at=number)]))
        await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(moved[-1])

    found = await verified(Interrupted(ledger, move), url)
    assert found.differences == 0
    assert is_after(found.position.sequence, HEAD)


async def _verified(ledger: JetStreamLedger, url: str) -> None:
    assert (await verified(ledger, url)).differences == 0


async def _rebuilt(ledger: JetStreamLedger, url: str) -> None:
    await rebuild(DevicesProjection(), ledger, url)


@pytest.mark.parametrize(("work", "name"), [(_verified, "verify"), (_rebuilt, "rebuild")])
async def test_while_the_log_is_folded_vacuum_removes_what_is_dead(
    work: Callable[[JetStreamLedger, str], Awaitable[None]], name: str, ledger: JetStreamLedger, url: str
) -> None:
    """A snapshot anywhere in the database keeps every row that was deleted since it was taken."""
    execute(url, "CREATE TABLE churned AS SELECT generate_series(1, 1000) AS number")
    found: list[tuple[object, ...]] = []

    async def look() -> None:
        execute(url, "DELETE FROM churned WHERE number %% 7 = %s", len(found))
        sessions = execute(
            url,
            "SELECT backend_xmin FROM pg_stat_activity WHERE application_name LIKE %s",
            f"gpuledger {name} devices%",
        )
        found.append((*sessions, dead_rows_kept(url, "churned")))

    await work(Interrupted(ledger, look), url)
    assert found == [((None,), 0)]


async def test_what_cannot_be_compared_is_refused(ledger: JetStreamLedger, url: str) -> None:
    class Newer(DevicesProjection):
        version = DevicesProjection.version + 1

    class Unbuilt(DevicesProjection):
        name = "unbuilt"

    with pytest.raises(VersionError):
        await verify(Newer(), ledger, url)
    with pytest.raises(NotBuiltError, match="`gpuledger replay unbuilt`"):
        await verify(Unbuilt(), ledger, url)
    execute(url, "UPDATE gpuledger.projection SET generation = 3")
    with pytest.raises(GenerationMismatchError):
        await verified(ledger, url)
