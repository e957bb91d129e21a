"""The node writer is killed at each step of a drain: what it did before is not done again."""

from datetime import datetime, timedelta
from functools import partial

import pytest

from gpuledger.events.maintenance import Drain, NodeDrainFinished, NodePodDeletionRequested
from gpuledger.runtime.clock import system_clock
from support.draining import IMMEDIATE, blocked_pod, ending, until
from support.killing import SteppingClient, Steps
from support.nodewriting import Maintainer, node_writer, run_until_killed

STEPS = 8
"""To read the Node and its pods, to evict one, and to report: two steps each."""

pytestmark = pytest.mark.embedded_only("pods are bound and made ready without a scheduler and a kubelet")


async def test_a_kill_at_any_step_evicts_each_pod_once(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    kill_at, was_killed = 0, True
    while was_killed:
        kill_at += 1
        name, pods = f"n{kill_at}", [f"a{kill_at}", f"b{kill_at}"]
        await maintainer.node(name, unschedulable=True)
        await maintainer.pod(pods[0], name)
        await maintainer.pod(pods[1], name, grace_s=30)
        intent = await maintainer.drain(name, IMMEDIATE)
        steps, end = Steps(kill_at), partial(ending, maintainer, name)
        was_killed = await run_until_killed(maintainer.ledger, migrated_url, writing, steps, end)
        async with node_writer(maintainer.ledger, migrated_url, writing):
            await end()
            await until(maintainer, intent, NodeDrainFinished)
        assert [one for one in writing.evictions() if one in pods] == pods
        outcomes = [one for one in await maintainer.outcomes(intent) if isinstance(one.data, NodeDrainFinished)]
        assert len(outcomes) == 1
    assert kill_at > STEPS


def late() -> datetime:
    """A minute from now: the time of every pod is over when a writer begins."""
    return system_clock() + timedelta(minutes=1)


@pytest.mark.long
async def test_a_kill_at_any_step_deletes_a_blocked_pod_once(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    kill_at, was_killed = 0, True
    drain = Drain(mode="DeleteAfterTimeout", timeout_s=1)
    while was_killed:
        kill_at += 1
        name, pods = f"n{kill_at}", [f"a{kill_at}", f"b{kill_at}"]
        await maintainer.node(name, unschedulable=True)
        uids = [await blocked_pod(maintainer, one, name, grace_s=30) for one in pods]
        intent = await maintainer.drain(name, drain)
        steps, end = Steps(kill_at), partial(ending, maintainer, name)
        was_killed = await run_until_killed(maintainer.ledger, migrated_url, writing, steps, end, clock=late)
        async with node_writer(maintainer.ledger, migrated_url, writing, clock=late):
            await end()
            await until(maintainer, intent, NodeDrainFinished)
        assert sorted(one for one in writing.deletions() if one in pods) == pods
        asked = [one.data for one in await maintainer.outcomes(intent)]
        assert sorted(one.uid for one in asked if isinstance(one, NodePodDeletionRequested)) == sorted(uids)
    assert kill_at > STEPS
