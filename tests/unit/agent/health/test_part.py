"""The health part: what it puts on the board, what it records, and what it knows after a restart."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest

from gpuledger.agent.board import Board
from gpuledger.agent.hardware.api import Readings, Unread, Unregistered, Xid
from gpuledger.agent.hardware.errors import CardLostError, DriverMissingError, HardwareError, HungError
from gpuledger.agent.health import pending
from gpuledger.agent.health.card import CLEAR_AFTER_S, Rules
from gpuledger.agent.health.kernel_errors import ReadLog
from gpuledger.agent.health.part import POLL_PERIOD_S, RETRY_MAX_S, RETRY_S, HealthMonitor
from gpuledger.agent.part import AgentFact, Recorder
from gpuledger.events.device import DeviceErrorsObserved, DeviceFailed, DeviceHealthChanged
from support.agent_parts import CARD, NODE, PLACE, SURVEY, UUID, Disk, ScriptedCalls, Time, settle

TWO = SURVEY._replace(cards=(CARD, CARD._replace(address="0000:3d:00.0", uuid="GPU-3d")))


class Watched:
    """A watch with what it stands on."""

    def __init__(self, disk: Disk | None = None, *, read_kernel_log: ReadLog | None = None) -> None:
        self.time = Time()
        self.calls = ScriptedCalls()
        self.board = Board()
        self.disk = disk or Disk()
        self.recovered = 0
        self.part = HealthMonitor(
            self.calls,
            self.board,
            self.disk,
            Rules(NODE),
            clock=self.time.clock,
            monotonic=self.time.monotonic,
            sleep=self.time.sleep,
            on_recovered=self.recover,
            read_kernel_log=read_kernel_log,
        )

    def recover(self) -> None:
        self.recovered += 1

    @asynccontextmanager
    async def running(self, record: Recorder | None = None) -> AsyncIterator[None]:
        task = asyncio.create_task(self.part.run(record or self.disk.record))
        await settle()
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def strike(self, number: int, address: str = PLACE) -> None:
        self.calls.xids.put_nowait(Xid(address, number))
        await settle()

    @property
    def verdicts(self) -> list[tuple[str, bool]]:
        return [
            (fact.subject, fact.data.healthy)
            for fact in self.disk.recorded
            if isinstance(fact.data, DeviceHealthChanged)
        ]

    @property
    def failures(self) -> int:
        return sum(isinstance(fact.data, DeviceFailed) for fact in self.disk.recorded)


@pytest.fixture
def watched() -> Watched:
    one = Watched()
    one.board.put(survey=SURVEY)
    return one


async def test_an_error_comes_on_the_board_without_a_timer_and_before_the_disk(watched: Watched) -> None:
    never = asyncio.Event()

    async def hang(facts: Sequence[AgentFact]) -> None:
        await never.wait()

    async with watched.running(hang):
        assert watched.board.state.unfit == {}
        await watched.strike(79)
        assert watched.board.state.unfit == {PLACE: "XID 79"}
        never.set()


async def test_a_card_recovers_and_the_exporters_part_is_notified_once_that_is_recorded(watched: Watched) -> None:
    verdicts_before: list[int] = []
    watched.recover = lambda: verdicts_before.append(len(watched.verdicts))  # type: ignore[method-assign]
    watched.part._on_recovered = watched.recover
    async with watched.running():
        await watched.strike(95)
        await watched.time.advance(CLEAR_AFTER_S + 2 * POLL_PERIOD_S)
        assert watched.verdicts == [(UUID, True), (UUID, False), (UUID, True)]
        assert watched.board.state.unfit == {}
        assert verdicts_before == [1, 3]


async def test_a_lost_card_is_unfit_and_the_others_are_polled(watched: Watched) -> None:
    watched.board.put(survey=TWO)
    watched.calls.read[PLACE] = CardLostError("gone")
    async with watched.running():
        assert watched.board.state.unfit == {PLACE: "OffTheBus"}
        watched.calls.read["0000:3d:00.0"] = Readings(remap_failed=True)
        del watched.calls.read[PLACE]
        await watched.time.advance(2 * POLL_PERIOD_S)
        assert watched.board.state.unfit == {"0000:3d:00.0": "RemapFailed"}


async def test_a_driver_that_is_missing_is_no_fault_of_a_card(watched: Watched) -> None:
    watched.board.put(survey=SURVEY._replace(driver_missing=True))
    watched.calls.read[PLACE] = DriverMissingError("no driver")
    async with watched.running():
        await watched.time.advance(3 * POLL_PERIOD_S)
        assert (watched.board.state.unfit, watched.disk.recorded) == ({PLACE: "DriverMissing"}, [])
        watched.board.put(survey=SURVEY)
        await watched.time.advance(POLL_PERIOD_S)
        assert (watched.board.state.unfit, watched.disk.recorded, watched.part.trouble) == (
            {PLACE: "NotLookedAt"},
            [],
            None,
        )
        del watched.calls.read[PLACE]
        await watched.time.advance(POLL_PERIOD_S)
        assert (watched.board.state.unfit, watched.verdicts) == ({}, [(UUID, True)])


async def test_a_driver_that_goes_takes_all_cards_with_it_at_once(watched: Watched) -> None:
    async with watched.running():
        assert watched.board.state.unfit == {}
        watched.board.put(survey=SURVEY._replace(driver_missing=True))
        await settle()
        assert watched.board.state.unfit == {PLACE: "DriverMissing"}
        watched.board.put(survey=SURVEY)
        await settle()
        assert watched.board.state.unfit == {}


async def test_a_driver_that_hangs_reports_nothing_of_the_cards_and_health_shows_it(watched: Watched) -> None:
    watched.calls.read[PLACE] = HungError("the driver hangs")
    async with watched.running():
        assert watched.board.state.unfit is None
        assert (watched.part.trouble, watched.part.alive_at) == ("the driver hangs", watched.time.s)
        del watched.calls.read[PLACE]
        await watched.time.advance(POLL_PERIOD_S)
        assert watched.board.state.unfit == {}
        assert (watched.part.trouble, watched.verdicts) == (None, [(UUID, True)])


async def test_a_card_that_has_the_driver_hang_each_time_hides_no_other(watched: Watched) -> None:
    watched.board.put(survey=TWO)
    watched.calls.read[PLACE] = HungError("the driver hangs")
    async with watched.running():
        await watched.time.advance(POLL_PERIOD_S)
        assert watched.board.state.unfit == {PLACE: "NotLookedAt"}
        watched.calls.read["0000:3d:00.0"] = Readings(remap_failed=True)
        await watched.time.advance(2 * POLL_PERIOD_S)
        assert watched.board.state.unfit == {PLACE: "NotLookedAt", "0000:3d:00.0": "RemapFailed"}
        watched.calls.read.clear()
        await watched.time.advance(3 * POLL_PERIOD_S)
        assert (watched.board.state.unfit, watched.part.trouble) == ({}, None)


async def test_a_watch_that_cannot_hear_listens_again(watched: Watched) -> None:
    watched.calls.xids.put_nowait(HardwareError("no events"))
    async with watched.running():
        await watched.strike(79)
        assert watched.failures == 0
        await watched.time.advance(POLL_PERIOD_S)
        assert watched.failures == 1


async def test_errors_of_a_card_that_nobody_sees_are_passed_over(watched: Watched) -> None:
    async with watched.running():
        await watched.strike(79, "0000:ff:00.0")
        assert watched.verdicts == [(UUID, True)]
        assert len(watched.disk.recorded) == 1


async def test_a_restart_reports_how_a_card_stands_and_counts_no_failure_twice(watched: Watched) -> None:
    async with watched.running():
        await watched.strike(95)
    again = Watched(watched.disk)
    again.board.put(survey=SURVEY)
    async with again.running():
        assert again.board.state.unfit == {PLACE: "XID 95"}
        assert again.verdicts == [(UUID, True), (UUID, False), (UUID, False)]
        assert again.failures == 1
        await again.time.advance(CLEAR_AFTER_S + 2 * POLL_PERIOD_S)
        assert again.verdicts == [(UUID, True), (UUID, False), (UUID, False), (UUID, True)]


async def test_a_verdict_that_never_reached_the_disk_is_reported_after_the_restart(watched: Watched) -> None:
    async def crash(facts: Sequence[AgentFact]) -> None:
        if any(isinstance(fact.data, DeviceFailed) for fact in facts):
            raise OSError("killed")

    task = asyncio.create_task(watched.part.run(crash))
    await settle()
    await watched.strike(95)
    with pytest.raises(OSError, match="killed"):
        await task
    again = Watched(watched.disk)
    again.board.put(survey=SURVEY)
    async with again.running():
        assert (again.verdicts, again.failures) == ([(UUID, False)], 1)


async def test_what_was_counted_is_reported_at_the_end(watched: Watched) -> None:
    async with watched.running():
        for _ in range(5):
            await watched.strike(31)
    data = [fact.data for fact in watched.disk.recorded]
    assert [one.count for one in data if isinstance(one, DeviceErrorsObserved)] == [1, 4]


async def test_a_quiet_node_writes_nothing_more(watched: Watched) -> None:
    async with watched.running():
        writes = watched.disk.writes
        await watched.time.advance(100 * POLL_PERIOD_S)
        assert (watched.disk.writes, len(watched.disk.recorded)) == (writes, 1)


async def test_rubbish_on_the_disk_is_no_reason_not_to_watch(watched: Watched) -> None:
    watched.disk.stored["health"] = b"rubbish"
    async with watched.running():
        assert watched.board.state.unfit == {}


async def test_of_facts_that_wait_none_is_lost_and_errors_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "PENDING_MAX", 2)
    waiting, time = pending.PendingFacts(), Time()
    error = AgentFact(
        UUID, DeviceErrorsObserved(kind="XID 31", cause="application", first_at=time.clock()), time.clock()
    )
    other = AgentFact(
        UUID, DeviceErrorsObserved(kind="XID 13", cause="application", first_at=time.clock()), time.clock()
    )
    verdict = AgentFact(UUID, DeviceHealthChanged(healthy=False), time.clock())
    late = error._replace(time=error.time + timedelta(seconds=1))
    waiting.add([verdict, error, error, late, other, verdict])
    added = late._replace(data=error.data.model_copy(update={"count": 3}))
    assert await waiting.next() == [verdict, added, other, verdict]
    waiting.close()
    assert await waiting.next() == []


async def test_cards_whose_errors_do_not_reach_the_agent_are_a_trouble_that_is_logged_when_it_changes(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    async with watched.running():
        assert watched.part.trouble is None
        for reason in ("one", "one", "another"):
            watched.calls.refused = {PLACE: Unregistered("Refused", f"The driver says {reason}.")}
            await watched.time.advance(POLL_PERIOD_S)
            assert watched.board.state.unregistered == watched.calls.refused
            expected = f"{PLACE}: its errors (XIDs) do not reach the agent. The driver says {reason}."
            assert watched.part.trouble == expected
        watched.calls.refused = {}
        await watched.time.advance(POLL_PERIOD_S)
        assert (watched.part.trouble, watched.board.state.unregistered) == (None, {})
    out = capsys.readouterr().out
    assert (out.count("a part cannot work"), out.count("a part works again")) == (2, 1)


def is_well(watched: Watched) -> bool:
    return watched.part.trouble is None and not watched.board.state.unread


async def test_readings_that_the_driver_fails_to_give_are_a_trouble_that_is_logged_once(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    unread = (Unread("remap_failed", "Unknown Error"),)
    async with watched.running():
        watched.calls.read[PLACE] = Readings(remap_failed=True)
        await watched.time.advance(POLL_PERIOD_S)
        watched.calls.read[PLACE] = Readings(unread=unread)
        await watched.time.advance(5 * POLL_PERIOD_S)
        assert watched.board.state.unfit == {PLACE: "RemapFailed"}
        assert watched.board.state.unread == {PLACE: unread}
        assert watched.part.trouble is not None
        assert f"{PLACE}: " in watched.part.trouble
        assert "remap_failed: Unknown Error" in watched.part.trouble
        watched.calls.read[PLACE] = CardLostError("gone")
        await watched.time.advance(POLL_PERIOD_S)
        assert is_well(watched), "it gives no reading at all"
        watched.calls.read[PLACE] = Readings(unread=unread)
        await watched.time.advance(POLL_PERIOD_S)
        watched.board.put(survey=SURVEY._replace(cards=()))
        await watched.time.advance(POLL_PERIOD_S)
        assert is_well(watched), "the card was pulled"
    out = capsys.readouterr().out
    assert (out.count("a part cannot work"), out.count("a part works again")) == (2, 2)


async def test_a_card_that_cannot_be_polled_hides_no_other_trouble(watched: Watched) -> None:
    watched.calls.read[PLACE] = HungError("no answer")
    watched.calls.refused = {PLACE: Unregistered("Refused", "The driver says no.")}
    async with watched.running():
        assert watched.part.trouble is not None
        assert watched.part.trouble.startswith("no answer ")
        assert "The driver says no." in watched.part.trouble


async def test_waits_that_fail_are_made_ever_less_often_and_each_reason_is_logged(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    async with watched.running():
        for reason in ("one", "one", "another", "one"):
            watched.calls.xids.put_nowait(HardwareError(reason))
        pauses = [RETRY_S, 2 * RETRY_S, 4 * RETRY_S]
        for left, pause_s in zip((3, 2, 1), pauses, strict=True):
            await settle()
            assert watched.calls.xids.qsize() == left
            await watched.time.advance(pause_s)
        await watched.time.advance(RETRY_MAX_S)
        assert watched.calls.xids.empty()
        watched.calls.xids.put_nowait(Xid(PLACE, 31))
        watched.calls.xids.put_nowait(HardwareError("one"))
        await settle()
    out = capsys.readouterr().out
    assert out.count("cannot wait for errors of the cards") == 4


class KernelLog:
    """A kernel's log that a test writes; an error that stands here is raised."""

    def __init__(self) -> None:
        self.text = "<6>[    1.0] begin\n"
        self.error: HardwareError | None = None
        self.reads = 0

    async def read(self) -> str:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.text

    def xid(self, number: int, address: str = PLACE) -> None:
        self.text += f"<4>[    {self.text.count(chr(10))}.0] NVRM: Xid (PCI:{address[:-2]}): {number}, something\n"


REFUSED = {PLACE: Unregistered("Refused", "The driver says no.")}


async def test_cards_that_the_driver_does_not_report_are_heard_by_the_kernels_log() -> None:
    kernel = KernelLog()
    watched = Watched(read_kernel_log=kernel.read)
    watched.board.put(survey=TWO)
    async with watched.running():
        assert kernel.reads == 0, "the driver reports them"
        kernel.xid(119)
        watched.calls.refused = REFUSED
        await watched.time.advance(POLL_PERIOD_S)
        assert (watched.part.trouble, watched.board.state.unregistered) == (None, {})
        assert watched.board.state.unfit == {}, "that was before"
        kernel.xid(48, TWO.cards[1].address)
        kernel.xid(79)
        await watched.time.advance(POLL_PERIOD_S)
        assert watched.board.state.unfit == {PLACE: "XID 79"}, "the driver reports the other one"
        assert watched.failures == 1
        watched.calls.refused = {}
        await watched.time.advance(POLL_PERIOD_S)
        reads = kernel.reads
        await watched.time.advance(POLL_PERIOD_S)
        assert kernel.reads == reads


async def test_a_kernels_log_that_cannot_be_read_leaves_the_trouble_with_both_reasons() -> None:
    kernel = KernelLog()
    kernel.error = HardwareError("The log is for others.")
    watched = Watched(read_kernel_log=kernel.read)
    watched.board.put(survey=SURVEY)
    watched.calls.refused = REFUSED
    async with watched.running():
        assert "The driver says no. The log is for others." in (watched.part.trouble or "")
        assert watched.board.state.unregistered.keys() == {PLACE}
        kernel.error = None
        kernel.xid(79)
        await watched.time.advance(POLL_PERIOD_S)
        assert (watched.part.trouble, watched.failures) == (None, 0), "its first look"
        kernel.xid(79)
        await watched.time.advance(POLL_PERIOD_S)
        assert watched.failures == 1
        kernel.error = HardwareError("The log is for others.")
        kernel.xid(48)
        await watched.time.advance(POLL_PERIOD_S)
        kernel.error = None
        await watched.time.advance(POLL_PERIOD_S)
        assert watched.failures == 2, "what was written meanwhile is not lost"
