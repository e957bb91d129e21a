"""Verifying: every difference between log and tables is found, and the first one named by its key."""

from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from gpuledger.events.device import DeviceFailed, DeviceInserted
from gpuledger.ledger.api import Position
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.errors import GenerationMismatchError, NotBuiltError, VersionError
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.projection.verify import Verification, verify
from gpuledger.readmodels.projections import DevicesProjection
from support.events import event, hour
from support.projections import QUICK, execute, publish

HEAD = 8


@pytest.fixture
async def url(ledger: JetStreamLedger, migrated_url: str) -> str:
    facts = [event(DeviceInserted(slot=f"s{number}"), f"d{number}", number=number, at=number) for number in range(1, 6)]
    facts += [
        event(DeviceFailed(kind="DBE"), "d1", number=number, at=number, event_id=f"f{number}") for number in (6, 7, 8)
    ]
    await Runner(DevicesProjection(), ledger, migrated_url, settings=QUICK).catch_up(await publish(ledger, facts))
    return migrated_url


async def verified(ledger: JetStreamLedger, url: str) -> Verification:
    return await verify(DevicesProjection(), ledger, url)


async def test_rows_that_are_true_have_no_difference(ledger: JetStreamLedger, url: str) -> None:
    assert await verified(ledger, url) == Verification("devices", Position(1, HEAD), 5 + 5 + 3 + 5, 0, None)


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

    class Interrupting(JetStreamLedger):
        pass

    async def history(*arguments: object, **named: object) -> AsyncIterator[object]:
        if not rebuilt:
            rebuilt.append(1)
            await rebuild(DevicesProjection(), ledger, url)
        async for batch in JetStreamLedger.history(ledger, *arguments, **named):  # type: ignore[arg-type]
            yield batch

    other = Interrupting.__new__(Interrupting)
    other.__dict__.update(ledger.__dict__)
    other.history = history  # type: ignore[assignment]
    assert (await verified(other, url)).differences == 0
    assert rebuilt


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
