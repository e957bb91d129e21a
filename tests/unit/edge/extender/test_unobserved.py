"""Pods that end before watchers see them do not hold their devices for good."""

from dataclasses import replace
from typing import Any

import pytest

from gpuledger.edge.extender.unobserved import UnobservedPods
from gpuledger.edge.kube.errors import UnavailableError
from gpuledger.events.sharing import PodDevicesReleased, PodSharingObserved
from support.extending_in_memory import ExtenderInMemory, in_memory_settings


async def bound_and_unobserved(longest_s: float = 0.0) -> tuple[ExtenderInMemory, UnobservedPods]:
    """A leader that has bound a pod to all of a card, and looks after so many seconds."""
    extender = ExtenderInMemory(replace(in_memory_settings(), unobserved_max_s=longest_s))
    extender.share("n1")
    extender.kube.put("a", gpu=100)
    extender.resume()
    assert await extender.bind("a") == ""
    extender.kube.writes.clear()
    return extender, extender.effects.unobserved


def is_held(extender: ExtenderInMemory) -> bool:
    row = extender.effects.state.pod("a")
    return row is not None and row.node == "n1"


@pytest.mark.parametrize("how", ["deleted", "another", "ended"])
async def test_a_pod_that_has_ended_gives_its_devices_back(how: str) -> None:
    extender, unobserved = await bound_and_unobserved()
    if how == "deleted":
        del extender.kube.pods["a"]
    elif how == "another":
        extender.kube.pods["a"]["metadata"]["uid"] = "another"
    else:
        extender.kube.pods["a"]["status"] = {"phase": "Succeeded"}
    await unobserved.look()
    last = extender.ledger.recorded[-1]
    assert isinstance(last, PodDevicesReleased)
    assert (last.uid, last.node, last.reason) == ("a", "n1", "PodGone")
    assert not is_held(extender)
    extender.kube.put("b", gpu=100)
    assert await extender.bind("b") == ""


@pytest.mark.parametrize("status", [{}, {"phase": "Running"}])
async def test_a_pod_that_is_there_keeps_them(status: dict[str, Any]) -> None:
    extender, unobserved = await bound_and_unobserved()
    extender.kube.pods["a"]["status"] = status
    extender.kube.pods["a"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    await unobserved.look()
    assert is_held(extender)


async def test_pods_that_were_seen_and_new_ones_are_not_looked_up() -> None:
    extender, unobserved = await bound_and_unobserved(longest_s=60.0)
    del extender.kube.pods["a"]
    await unobserved.look()
    assert is_held(extender), "it is new"
    extender, unobserved = await bound_and_unobserved()
    extender.record("default/a", PodSharingObserved(uid="a"))
    del extender.kube.pods["a"]
    await unobserved.look()
    assert is_held(extender), "watchers will record its end"


async def test_it_waits_while_kubernetes_does_not_answer() -> None:
    extender, unobserved = await bound_and_unobserved()
    del extender.kube.pods["a"]

    async def away(_verb: str, _about: Any) -> None:
        raise UnavailableError("nobody answers")

    before, extender.kube.before = extender.kube.before, away
    await unobserved.look()
    assert is_held(extender)
    extender.kube.before = before
    await unobserved.look()
    assert not is_held(extender)
