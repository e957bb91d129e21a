"""The agent follows its Node: it applies, reboots where that is due, reports each state once, and outlives troubles."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuledger.api.machine_config import (
    ANNOTATION_CURRENT,
    ANNOTATION_DESIRED_SET_AT,
    ANNOTATION_LAST_ERROR,
    ANNOTATION_REBOOT_PENDING,
    ANNOTATION_STATE,
    OBSERVED_ANNOTATIONS,
)
from gpuledger.configagent.agent import AgentTimes, ConfigAgent
from gpuledger.configagent.memory_file import MemoryFile
from gpuledger.domain.machineconfig.desired import DesiredConfig
from gpuledger.domain.machineconfig.rendered_object import document_of
from gpuledger.runtime.tasks import end
from support.config_agent import TIMES, FakeApi, FakeMachine, Reports, SteppingClock, config, file, unit
from support.waiting import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")

FIRST = config([file("/etc/a", "1")])
SECOND = config([file("/etc/a", "2")], [unit("a.service", "restarted")])
REBOOTING = config([file("/etc/a", "3")], reboot=True, strategy="IfRequired", min_interval_s=600)


class Place:
    """A node: its machine, its API, and what its agent reports."""

    def __init__(self, root: Path, *configs: DesiredConfig) -> None:
        self.machine = FakeMachine(root)
        self.api = FakeApi(*configs)
        self.reports = Reports()
        self.clock = SteppingClock()
        self.agent = self.new_agent()

    def new_agent(self, times: AgentTimes = TIMES) -> ConfigAgent:
        return ConfigAgent("w1", self.machine.host, self.api, self.reports, self.clock, times)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.agent = self.new_agent()
        task = asyncio.create_task(self.agent.run())
        try:
            yield
            assert not task.done(), task.exception()
        finally:
            await end([task])

    async def shows(self, state: str, current: str | None = None, **others: str) -> None:
        expected = {ANNOTATION_STATE: state} | ({ANNOTATION_CURRENT: current} if current else {})
        await self.until(lambda: expected.items() <= self.api.annotations.items())

    async def until(self, condition: Callable[[], bool]) -> None:
        async def holds() -> bool:
            return condition()

        await eventually(holds, interval_s=0.005)

    @property
    def error(self) -> str:
        return self.api.annotations.get(ANNOTATION_LAST_ERROR, "")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, FIRST, SECOND, REBOOTING)


async def test_a_node_goes_from_one_revision_to_the_next(place: Place) -> None:
    async with place.running():
        await place.shows("idle")
        assert place.api.annotations == {ANNOTATION_STATE: "idle", ANNOTATION_REBOOT_PENDING: "false"}
        await place.api.desire(FIRST.name)
        await place.shows("done", FIRST.name)
        await place.api.desire(SECOND.name)
        await place.shows("done", SECOND.name)
        assert place.machine.path("/etc/a").read_text() == "2"
        await place.api.desire(None)
        await place.shows("idle", SECOND.name)
    assert place.reports.states == ["idle", "applying", "done", "applying", "done", "idle"]
    done = place.reports.facts[4]
    assert [(one.subject, one.action, one.outcome) for one in done.changes] == [
        ("/etc/a", "write", "changed"),
        ("a.service", "restart", "changed"),
    ]
    assert {name for patch in place.api.patches for name in patch} == set(OBSERVED_ANNOTATIONS)


async def test_an_agent_that_starts_again_repeats_its_report_and_no_work(place: Place) -> None:
    await place.api.desire(SECOND.name)
    async with place.running():
        await place.shows("done", SECOND.name)
    reported, patched = len(place.reports.facts), len(place.api.patches)
    place.machine.systemd.calls.clear()
    async with place.running():
        await place.until(lambda: place.agent.report is not None)
        await place.api.desire(FIRST.name)
        await place.shows("done", FIRST.name)
    assert place.machine.systemd.calls == []
    again = [(fact.state, fact.revision) for fact in place.reports.facts[reported:]]
    assert again == [("done", SECOND.name), ("applying", FIRST.name), ("done", FIRST.name)]
    assert len(place.api.patches) == patched + 2


async def test_a_node_that_is_asked_again_reports_again(place: Place) -> None:
    await place.api.desire(FIRST.name)
    async with place.running():
        await place.shows("done", FIRST.name)
        patched = len(place.api.patches)
        await place.api.set({ANNOTATION_DESIRED_SET_AT: "2026-01-09T10:00:00Z"})
        await place.until(lambda: place.reports.states == ["applying", "done", "done"])
        assert [fact.change_count for fact in place.reports.facts] == [0, 1, 0]
        orders = [fact.desired_set_at for fact in place.reports.facts]
        assert orders == [None, None, datetime(2026, 1, 9, 10, tzinfo=UTC)]
        assert len(place.api.patches) == patched


async def test_what_is_on_the_disk_counts_for_more_than_the_annotations(place: Place) -> None:
    await place.api.desire(FIRST.name)
    async with place.running():
        await place.shows("done", FIRST.name)
    place.api.annotations[ANNOTATION_CURRENT] = SECOND.name
    async with place.running():
        await place.shows("done", FIRST.name)


async def test_an_error_is_shown_and_goes_when_a_later_attempt_works(place: Place) -> None:
    place.machine.systemd.failing = {"a.service"}
    await place.api.desire(FIRST.name)
    async with place.running():
        await place.shows("done", FIRST.name)
        await place.api.desire(SECOND.name)
        await place.shows("error", FIRST.name)
        assert place.error == "systemctl restart a.service failed with exit code 1: refused"
        await place.until(lambda: place.agent.counts.failures >= 3)
        place.machine.systemd.failing = set()
        await place.shows("done", SECOND.name)
        assert place.error == ""
    assert place.reports.states == ["applying", "done", "applying", "error", "done"]
    assert [one.outcome for one in place.reports.facts[3].changes] == ["changed", "failed"]


async def test_a_configuration_that_is_missing_or_was_changed_is_not_applied(place: Place) -> None:
    async with place.running():
        await place.api.desire("rendered-worker-0000000000")
        await place.shows("error")
        assert "There is no RenderedMachineConfig rendered-worker-0000000000" in place.error
        document = document_of(FIRST)
        document["spec"]["config"]["files"][0]["content"] = "changed"
        place.api.documents[FIRST.name] = document
        await place.api.desire(FIRST.name)
        await place.until(lambda: "it was changed or cut" in place.error)
        assert place.reports.facts[-1].changes == ()
        assert not place.machine.path("/etc/a").exists()
        place.api.documents[FIRST.name] = document_of(FIRST)
        await place.shows("done", FIRST.name)


async def test_reports_reach_a_server_that_was_away(place: Place) -> None:
    await place.api.desire(FIRST.name)
    async with place.running():
        await place.shows("done", FIRST.name)
        await place.api.leave()
        await place.until(lambda: "watch" in place.agent.troubles)
        place.machine.path("/etc/a").write_text("by hand")
        await place.until(lambda: place.reports.states[-1] == "error" and "report" in place.agent.troubles)
        place.api.is_away = False
        await place.shows("error", FIRST.name)
        assert place.error.startswith("content mismatch for /etc/a (hash ")
        await place.until(lambda: place.agent.troubles == {})


async def test_a_file_that_was_changed_by_hand_is_reported_until_it_is_right(place: Place) -> None:
    await place.api.desire(FIRST.name)
    async with place.running():
        await place.shows("done", FIRST.name)
        place.machine.path("/etc/a").chmod(0o600)
        await place.shows("error", FIRST.name)
        assert "/etc/a (its mode or owner was changed)" in place.error
        assert place.agent.counts.drifted_files == 1
        place.machine.path("/etc/a").chmod(0o644)
        await place.shows("done", FIRST.name)
        place.machine.path("/etc/a").write_text("by hand")
        await place.shows("error", FIRST.name)
        await place.api.desire(SECOND.name)
        await place.shows("done", SECOND.name)


async def test_annotations_that_somebody_changes_are_written_again(place: Place) -> None:
    await place.api.desire(FIRST.name)
    async with place.running():
        await place.shows("done", FIRST.name)
        await place.api.set({ANNOTATION_STATE: "error", ANNOTATION_CURRENT: None})
        await place.shows("done", FIRST.name)


async def test_a_machine_reboots_between_its_report_and_the_revision_that_is_done(place: Place) -> None:
    await place.api.desire(REBOOTING.name)
    async with place.running():
        await place.until(lambda: place.machine.reboots_asked == 1)
        assert place.api.annotations[ANNOTATION_STATE] == "rebooting"
        assert place.api.annotations[ANNOTATION_REBOOT_PENDING] == "true"
        assert ANNOTATION_CURRENT not in place.api.annotations
    place.machine.boots += 1
    async with place.running():
        await place.shows("done", REBOOTING.name)
        assert place.api.annotations[ANNOTATION_REBOOT_PENDING] == "false"
    assert place.reports.states == ["applying", "rebooting", "done"]
    assert [fact.boot for fact in place.reports.facts] == ["boot-0", "boot-0", "boot-1"]
    assert place.machine.reboots_asked == 1


async def test_the_next_reboot_waits_for_the_interval(place: Place) -> None:
    await place.api.desire(REBOOTING.name)
    async with place.running():
        await place.until(lambda: place.machine.reboots_asked == 1)
    place.machine.boots += 1
    again = config([file("/etc/a", "4")], reboot=True, strategy="IfRequired", min_interval_s=600)
    place.api.documents[again.name] = document_of(again)
    async with place.running():
        await place.shows("done", REBOOTING.name)
        place.clock.pass_s(599)
        await place.api.desire(again.name)
        await place.shows("rebooting", REBOOTING.name)
    assert place.machine.reboots_asked == 1
    place.clock.pass_s(1)
    async with place.running():
        await place.until(lambda: place.machine.reboots_asked == 2)


async def test_no_reboot_begins_before_its_report_is_there(place: Place) -> None:
    await place.api.desire(REBOOTING.name)

    place.api.takes_patches = False
    async with place.running():
        await place.until(lambda: place.reports.states == ["applying", "rebooting"])
        await place.until(lambda: "report" in place.agent.troubles)
    assert place.machine.reboots_asked == 0


async def test_a_machine_that_does_not_reboot_is_an_error_and_is_asked_again(place: Place) -> None:
    await place.api.desire(REBOOTING.name)
    place.machine.on_reboot = lambda: place.clock.pass_s(601)
    async with place.running():
        await place.until(lambda: "still runs after 600 s" in place.error)
        await place.until(lambda: place.machine.reboots_asked >= 2)


async def test_a_reboot_is_left_to_people_where_the_pool_never_reboots(place: Place) -> None:
    never = config([file("/etc/a", "5")], reboot=True)
    place.api.documents[never.name] = document_of(never)
    await place.api.desire(never.name)
    async with place.running():
        await place.shows("done", never.name)
        assert place.api.annotations[ANNOTATION_REBOOT_PENDING] == "true"
        place.api.documents[never.name] = document_of(replace_strategy(never))
    async with place.running():
        await place.until(lambda: place.agent.report is not None)
    assert place.machine.reboots_asked == 0
    place.machine.boots += 1
    async with place.running():
        await place.until(lambda: place.api.annotations[ANNOTATION_REBOOT_PENDING] == "false")


def replace_strategy(one: DesiredConfig) -> DesiredConfig:
    return one._replace(reboot_strategy="IfRequired")


async def test_a_pool_that_stops_rebooting_releases_a_node_that_waits_for_its_reboot(place: Place) -> None:
    memory = MemoryFile(place.machine.state)
    await place.api.desire(REBOOTING.name)
    async with place.running():
        await place.until(lambda: place.machine.reboots_asked == 1)
    place.api.documents[REBOOTING.name] = document_of(REBOOTING._replace(reboot_strategy="Never"))
    memory.save(replace(memory.load(), requested=None))
    async with place.running():
        await place.shows("done", REBOOTING.name)
        assert place.api.annotations[ANNOTATION_REBOOT_PENDING] == "true"
    assert place.machine.reboots_asked == 1


async def test_a_memory_that_cannot_be_read_is_an_error_and_keeps_what_the_node_shows(place: Place) -> None:
    await place.api.desire(FIRST.name)
    async with place.running():
        await place.shows("done", FIRST.name)
    (place.machine.state / "state.json").write_text("{")
    async with place.running():
        await place.shows("error", FIRST.name)
        assert "Move it away" in place.error
    assert (place.machine.state / "state.json").read_text() == "{"


async def slowly(place: Place) -> tuple[threading.Event, threading.Event]:
    """Restart two units of a systemd that waits within each: an event that it has begun, and one that it may end."""
    begun, may_end = threading.Event(), threading.Event()
    run = place.machine.systemd.run

    def slow(verb: str, unit: str | None = None) -> None:
        begun.set()
        may_end.wait(10)
        run(verb, unit)

    place.machine.systemd.run = slow  # type: ignore[method-assign]
    two = config(units=[unit("a.service", "restarted"), unit("b.service", "restarted")])
    place.api.documents[two.name] = document_of(two)
    await place.api.desire(two.name)
    return begun, may_end


async def test_an_agent_that_is_stopped_ends_its_step_and_takes_no_other(place: Place) -> None:
    begun, may_end = await slowly(place)
    task = asyncio.create_task(place.new_agent().run())
    await place.until(begun.is_set)
    task.cancel()
    await asyncio.wait([task], timeout=0.05)
    assert not task.done()
    may_end.set()
    await end([task])
    assert place.machine.systemd.calls == ["restart a.service"]
    assert MemoryFile(place.machine.state).load().acted == ("a.service",)


async def test_a_revision_that_is_revoked_gives_way_between_two_steps(place: Place) -> None:
    begun, may_end = await slowly(place)
    async with place.running():
        await place.until(begun.is_set)
        await place.api.desire(FIRST.name)
        await place.until(lambda: place.agent.desired == FIRST.name)
        may_end.set()
        await place.shows("done", FIRST.name)
    assert place.machine.systemd.calls == ["restart a.service"]
    assert "error" not in place.reports.states
