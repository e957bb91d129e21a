"""A node reboots where that is due and at no other time: once, not too soon, and never after it was given back."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gpuledger.api.machine_config import (
    ANNOTATION_CURRENT,
    ANNOTATION_DESIRED,
    ANNOTATION_REBOOT_PENDING,
    ANNOTATION_STATE,
)
from gpuledger.configagent.memory_file import MemoryFile
from gpuledger.domain.machineconfig.desired import DesiredConfig
from gpuledger.domain.machineconfig.rendered_object import document_of
from support.config_agent import config, file
from support.config_agent_node import FIRST, REBOOTING, SECOND, Place

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, FIRST, SECOND, REBOOTING)


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


async def test_a_machine_that_forgets_with_each_reboot_reboots_once(place: Place) -> None:
    """Its state folder is in memory, and so are its files: nothing there says that it has rebooted already."""
    await place.api.desire(REBOOTING.name)
    async with place.running():
        await place.until(lambda: place.machine.reboots_asked == 1)
    for _ in range(2):
        place.machine.boots += 1
        shutil.rmtree(place.machine.state)
        place.machine.path("/etc/a").unlink()
        place.clock.pass_s(86_400)
        for _ in range(2):
            async with place.running():
                await place.shows("error")
                await place.until(lambda: "was lost while a reboot was due" in place.error)
                await place.until(lambda: place.agent.counts.failures >= 2)
    assert place.machine.reboots_asked == 1
    place.machine.boots += 1
    async with place.running():
        await place.shows("done", REBOOTING.name)
    assert place.machine.reboots_asked == 1


async def test_a_node_is_not_done_with_another_revision_while_it_goes_down(place: Place) -> None:
    """Nothing takes back that it was asked to reboot; users who get it now would lose their work."""
    await place.api.desire(REBOOTING.name)
    async with place.running():
        await place.until(lambda: place.machine.reboots_asked == 1)
        for revoked in (FIRST.name, SECOND.name):
            await place.api.desire(revoked)
            await place.until(lambda: place.reports.facts[-1].revision == revoked)  # noqa: B023 - awaited here
            assert place.reports.states[-1] == "rebooting"
        await place.until(lambda: place.api.annotations[ANNOTATION_STATE] == "rebooting")
    place.machine.boots += 1
    async with place.running():
        await place.shows("done", SECOND.name)
    assert place.machine.reboots_asked == 1


async def test_a_node_that_returns_to_its_revision_has_its_reboot_before_that_is_done(place: Place) -> None:
    await place.api.desire(REBOOTING.name)
    async with place.running():
        await place.until(lambda: place.machine.reboots_asked == 1)
    place.machine.boots += 1
    other = config([file("/etc/a", "4")], reboot=True, strategy="IfRequired", min_interval_s=600)
    place.api.documents[other.name] = document_of(other)
    async with place.running():
        await place.shows("done", REBOOTING.name)
        await place.api.desire(other.name)
        await place.shows("rebooting", REBOOTING.name)
    place.machine.boots += 1
    await place.api.desire(REBOOTING.name)
    place.clock.pass_s(600)
    reported = len(place.reports.facts)
    async with place.running():
        await place.until(lambda: place.machine.reboots_asked == 2)
    place.machine.boots += 1
    async with place.running():
        await place.shows("done", REBOOTING.name)
    assert place.reports.states[reported:] == ["applying", "rebooting", "done"]


async def test_a_clock_that_was_put_back_prolongs_no_wait_beyond_the_interval(place: Place) -> None:
    place.clock.pass_s(10 * 365 * 86_400)
    await place.api.desire(REBOOTING.name)
    async with place.running():
        await place.until(lambda: place.machine.reboots_asked == 1)
    place.machine.boots += 1
    place.clock.pass_s(-10 * 365 * 86_400)
    again = config([file("/etc/a", "4")], reboot=True, strategy="IfRequired", min_interval_s=600)
    place.api.documents[again.name] = document_of(again)
    await place.api.desire(again.name)
    async with place.running():
        await place.reports_reboot(again)
    place.clock.pass_s(600)
    async with place.running():
        await place.until(lambda: place.machine.reboots_asked == 2)


async def test_a_node_that_was_given_back_unheard_does_not_reboot(place: Place) -> None:
    """A watch that broke off during the wait for the interval hears nothing of a pool that goes."""
    await place.api.desire(REBOOTING.name)
    async with place.running():
        await place.until(lambda: place.machine.reboots_asked == 1)
    place.machine.boots += 1
    again = config([file("/etc/a", "4")], reboot=True, strategy="IfRequired", min_interval_s=600)
    place.api.documents[again.name] = document_of(again)
    await place.api.desire(again.name)
    async with place.running():
        await place.reports_reboot(again)
        await place.api.leave()
        await place.until(lambda: "watch" in place.agent.troubles)
        place.clock.pass_s(600)
        await place.agent._turn()
        assert place.machine.reboots_asked == 1
        place.api.annotations.pop(ANNOTATION_DESIRED)
        place.api.is_away = False
        await place.shows("idle")
    assert place.machine.reboots_asked == 1
