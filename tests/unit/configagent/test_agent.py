"""The agent follows its Node: it applies, reports each state once, and outlives troubles."""

import asyncio
import os
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuledger.api.machine_config import (
    ANNOTATION_CURRENT,
    ANNOTATION_DESIRED_SET_AT,
    ANNOTATION_REBOOT_PENDING,
    ANNOTATION_STATE,
    OBSERVED_ANNOTATIONS,
)
from gpuledger.configagent.agent import ConfigAgent
from gpuledger.configagent.errors import HostError
from gpuledger.configagent.memory_file import MemoryFile
from gpuledger.domain.machineconfig.rendered_object import document_of
from gpuledger.runtime.tasks import end
from support.config_agent import TIMES, config, file, unit
from support.config_agent_node import FIRST, REBOOTING, SECOND, Place

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


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


async def test_a_link_of_any_bytes_is_reported(place: Place) -> None:
    """What a user of the machine leaves in its folders must not end the agent."""
    place.machine.path("/etc/linked").symlink_to(os.fsdecode(b"\xff"))
    below, at = config([file("/etc/linked/a", "1")]), config([file("/etc/linked", "1")])
    place.api.documents |= {one.name: document_of(one) for one in (below, at)}
    await place.api.desire(below.name)
    async with place.running():
        await place.until(lambda: "/etc/linked is a link to \ufffd" in place.error)
        await place.api.desire(at.name)
        await place.shows("done", at.name)
    assert place.reports.facts[-1].changes[0].message == "replaces a link to \ufffd"


async def test_a_boot_that_the_kernel_does_not_name_is_an_error(place: Place) -> None:
    def unknown() -> str:
        raise HostError("boot_id: No such file or directory.")

    await place.api.desire(FIRST.name)
    agent = ConfigAgent(
        "w1", replace(place.machine.host, boot_id=unknown), place.api, place.reports, place.clock, TIMES
    )
    task = asyncio.create_task(agent.run())
    await place.shows("error")
    assert not task.done()
    await end([task])
    assert place.reports.facts[-1].boot is None


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
