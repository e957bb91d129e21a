"""Rows that left memory come back from PostgreSQL, where a start has loaded only what is open."""

import pytest

from gpuledger.events.device import DeviceInserted, DeviceRemoved
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from support.events import event, hour
from support.projections import QUICK, assert_true, publish, table

LIVES = [
    event(DeviceInserted(slot="s1", serial="A"), "d1", number=1, at=1),
    event(DeviceRemoved(slot="s1"), "d1", number=2, at=4),
    event(DeviceInserted(slot="s1"), "d2", number=3, at=5),
]
LATE = [
    event(DeviceRemoved(slot="s1"), "d1", number=4, at=2),
    event(DeviceInserted(slot="s2"), "d1", number=5, at=3),
    event(DeviceInserted(slot="s1"), "d1", number=6, at=3.5),
]


@pytest.mark.parametrize("at_once", [True, False], ids=["in one batch", "one by one"])
async def test_a_late_event_after_a_restart_finds_the_lives_that_ended(
    ledger: JetStreamLedger, url: str, at_once: bool
) -> None:
    for facts in [LIVES, *([LATE] if at_once else [[one] for one in LATE])]:
        await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(await publish(ledger, facts))
    lives = sorted(table(url, "installation", "device, slot, valid_from, valid_to"))
    assert lives == [
        ("d1", "s1", hour(1), hour(2)),
        ("d1", "s1", hour(3.5), hour(4)),
        ("d1", "s2", hour(3), None),
        ("d2", "s1", hour(5), None),
    ]
    await assert_true(ledger, url, [DevicesProjection()])


async def test_a_rebuild_makes_the_same_rows(ledger: JetStreamLedger, url: str) -> None:
    await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(await publish(ledger, [*LIVES, *LATE]))
    before = sorted(table(url, "installation", "device, slot, valid_from, valid_to"))
    await rebuild(DevicesProjection(), ledger, url)
    assert sorted(table(url, "installation", "device, slot, valid_from, valid_to")) == before
    await assert_true(ledger, url, [DevicesProjection()])
