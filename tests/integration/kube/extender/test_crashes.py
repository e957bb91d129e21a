"""An extender that is killed at any step of a binding: the next one brings the pod's reservation to its end."""

import asyncio
from contextlib import aclosing

import aiohttp
import pytest

from gpuledger.edge.extender.service import Extender, ExtenderLeadership
from gpuledger.edge.kube.client import Object
from gpuledger.events.sharing import PodDevicesBound, PodDevicesReleased, PodDevicesReserved
from gpuledger.projection.followed_log import FollowedLog
from support.extending import NAMES, QUICK_EXTENDER, RESTARTED, Scheduler, SharingCluster, is_ready, scheduling
from support.killing import SteppingClient, SteppingLedger, Steps, was_killed
from support.waiting import eventually

STEPS = 10
"""Whose the cluster is, the reservation, the annotation, the binding, and its outcome: two each."""


async def bind_until_killed(
    sharing: SharingCluster, database_url: str, client: SteppingClient, steps: Steps, pod: Object
) -> bool:
    """Run an extender until it is killed, or has bound the pod; says whether it was killed."""
    stepping = SteppingLedger(sharing.ledger, steps)
    async with aclosing(FollowedLog((), stepping, database_url)) as followed, aiohttp.ClientSession() as session:
        leadership = ExtenderLeadership(stepping, database_url, client, followed, settings=QUICK_EXTENDER)
        found = Extender(leadership, QUICK_EXTENDER)
        return await was_killed(found, _bound(found, session, pod), client, steps)


async def _bound(found: Extender, session: aiohttp.ClientSession, pod: Object) -> None:
    await eventually(lambda: is_ready(found))
    scheduler = Scheduler(session, await found.url())
    await scheduler.fits(pod, "n1")
    try:
        await scheduler.bind(pod, "n1")
    except (aiohttp.ClientError, AssertionError):
        await asyncio.Event().wait()  # it is killed


async def test_a_kill_at_any_step_leaves_a_pod_bound_with_its_devices_or_nothing(
    sharing: SharingCluster, migrated_url: str, writing: SteppingClient
) -> None:
    await sharing.share("n1")
    kill_at, killed = 0, True
    seen = set()
    while killed:
        kill_at += 1
        pod = await sharing.create(f"p{kill_at}", gpu=100)
        killed = await bind_until_killed(sharing, migrated_url, writing, Steps(kill_at), pod)
        async with scheduling(sharing.ledger, migrated_url, writing, RESTARTED) as scheduler:
            live = await sharing.live(pod)
            outcome = await _outcome(sharing, pod)
            is_bound, is_annotated = live["spec"].get("nodeName") == "n1", _annotation(live) is not None
            assert is_bound == is_annotated == (outcome is PodDevicesBound), (kill_at, outcome, live)
            seen.add(outcome)
            other = await sharing.create(f"other{kill_at}", gpu=100)
            free = bool((await scheduler.filter(other, "n1"))["NodeNames"])
            assert free is not is_bound, "the card is free, or the pod has it"
            if not is_bound:
                assert await scheduler.bind(pod, "n1") == "", "the scheduler tries again"
            assert _annotation(await sharing.live(pod)) is not None
            await sharing.delete(pod)
            await scheduler.fits(other, "n1")
    assert kill_at - 1 == STEPS
    assert seen == {None, PodDevicesReleased, PodDevicesBound}


@pytest.mark.parametrize("bound", [False, True])
async def test_an_open_reservation_waits_until_kubernetes_answers(
    sharing: SharingCluster, migrated_url: str, writing: SteppingClient, bound: bool
) -> None:
    """Killed behind the reservation, or behind the binding."""
    await sharing.share("n1")
    pod = await sharing.create("a", gpu=100)
    assert await bind_until_killed(sharing, migrated_url, writing, Steps(9 if bound else 5), pod)
    assert isinstance((await sharing.outcomes(pod))[-1], PodDevicesReserved)
    async with scheduling(sharing.ledger, migrated_url, writing, QUICK_EXTENDER) as scheduler:
        other = await sharing.create("b", gpu=100)
        assert (await scheduler.filter(other, "n1"))["NodeNames"] == []
        assert await scheduler.bind(pod, "n1") == "", "the attempt goes on where it ended"
    reserved, outcome = await sharing.outcomes(pod)
    assert isinstance(reserved, PodDevicesReserved)
    assert isinstance(outcome, PodDevicesBound)


async def _outcome(sharing: SharingCluster, pod: Object) -> type | None:
    """What came of the pod's reservation; None where there is none."""

    async def is_settled() -> bool:
        found = await sharing.outcomes(pod)
        return not found or not isinstance(found[-1], PodDevicesReserved)

    await eventually(is_settled)
    found = await sharing.outcomes(pod)
    return type(found[-1]) if found else None


def _annotation(live: Object) -> str | None:
    return (live["metadata"].get("annotations") or {}).get(NAMES.allocated)
