"""What others do between two steps of a binding: nothing is oversold, waits for ever, or stays reserved for nobody."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpuledger.edge.extender.pods import read_pod
from gpuledger.events.sharing import (
    NodeDevicesShared,
    PodDevicesBound,
    PodDevicesReleased,
    PodDevicesReserved,
    PodSharingGone,
    PodSharingObserved,
)
from support.extending import NAMES, gpu
from support.extending_in_memory import ExtenderInMemory
from support.waiting import eventually

HALF = {"gpu_core": 50, "gpu_memory_ratio": 50}
PATIENCE_S = 10.0


@contextmanager
def leading(extender: ExtenderInMemory) -> Iterator[None]:
    extender.resume()
    with extender.working():
        yield


async def bound(extender: ExtenderInMemory, name: str, node: str = "n1") -> str:
    return await asyncio.wait_for(extender.bind(name, node), PATIENCE_S)


async def test_a_pod_whose_end_is_folded_with_its_reservation_gets_nothing() -> None:
    extender = ExtenderInMemory()
    extender.share("n1")
    extender.kube.put("a", gpu=100)
    extender.kube.put("b", gpu=100)
    with leading(extender):
        extender.ledger.late.append(("default/a", PodSharingGone(uid="a")))
        assert await bound(extender, "a") == "PodGone"
        assert not extender.effects.state.open_reservation.rows
        assert await bound(extender, "b") == ""
    assert extender.kube.writes == ["annotate b", "bind b"]


async def test_a_node_that_is_unlabelled_with_the_reservation_gives_nothing() -> None:
    extender = ExtenderInMemory()
    extender.share("n1")
    extender.kube.put("a", gpu=100)
    with leading(extender):
        extender.ledger.late.append(("n1", NodeDevicesShared(enabled=False)))
        assert await bound(extender, "a") == "DevicesTaken"
    assert not extender.effects.state.open_reservation.rows
    assert extender.kube.writes == []


async def test_a_card_that_is_replaced_with_the_reservation_is_not_given() -> None:
    extender = ExtenderInMemory()
    extender.share("n1")
    extender.kube.put("a", gpu=100)
    with leading(extender):
        replaced = gpu("n1", 0).model_copy(update={"id": "GPU-another"})
        extender.ledger.late.append(("n1", NodeDevicesShared(devices=(replaced,))))
        assert await bound(extender, "a") == "DevicesTaken"
        assert await bound(extender, "a") == ""
    assert '"GPU-another"' in extender.kube.pods["a"]["metadata"]["annotations"][NAMES.allocated]


async def test_a_reservation_that_does_not_count_is_not_carried_out() -> None:
    """The process before had a clock that is ahead: what it has released counts as later."""
    extender = ExtenderInMemory()
    extender.share("n1")
    extender.kube.put("a", gpu=100)
    ahead = extender.ledger.now().replace(year=2027)
    extender.ledger.fold("default/a", PodDevicesReleased(uid="a", node="n1", reason="x"), at=ahead)
    with leading(extender):
        assert await bound(extender, "a") == "DevicesTaken"
    assert extender.kube.writes == []
    assert not extender.effects.state.open_reservation.rows


def _left_open(extender: ExtenderInMemory, name: str) -> None:
    """A process before has reserved a card for a pod, and no more."""
    extender.share("n1")
    found = read_pod(extender.kube.put(name, gpu=100), NAMES)
    card = {"minor": 0, "id": "GPU-n1-0", "resources": {"gpu-core": 100, "gpu-memory-ratio": 100}}
    reserved = PodDevicesReserved.model_validate(
        {"uid": found.uid, "node": "n1", "allocation": {"gpu": [card]}, "strategy": "x"}
    )
    extender.ledger.fold(found.pod, reserved)


async def test_a_reservation_that_is_being_settled_is_not_carried_out_meanwhile() -> None:
    extender = ExtenderInMemory()
    _left_open(extender, "a")
    extender.kube.put("b", gpu=100)
    asked, answers = asyncio.Event(), asyncio.Event()

    async def slow(verb: str, _about: Any) -> None:
        if verb == "get":
            asked.set()
            await answers.wait()

    extender.kube.before = slow
    with leading(extender):
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        assert await bound(extender, "a") == "Busy", "the answer to who settles it says that it is not bound"
        answers.set()
        await eventually(lambda: _is_empty(extender))
        assert await bound(extender, "b") == ""
        assert await bound(extender, "a") == "NoRoom"
    assert extender.kube.writes == ["annotate b", "bind b"]


async def test_an_attempt_that_fails_leaves_what_is_open_to_be_settled() -> None:
    extender = ExtenderInMemory()
    _left_open(extender, "a")
    asked, answers = asyncio.Event(), asyncio.Event()

    async def refusing(verb: str, _about: Any) -> None:
        if verb == "get" and not answers.is_set():
            asked.set()
            await answers.wait()
            del extender.kube.pods["a"]

    extender.kube.before = refusing
    extender.resume()
    binding = asyncio.create_task(bound(extender, "a"))
    await asyncio.wait_for(asked.wait(), PATIENCE_S)
    with extender.working():
        for _ in range(10):
            await asyncio.sleep(0)
        answers.set()
        assert await binding == "PodGone"
        await eventually(lambda: _is_empty(extender))
    assert isinstance(extender.ledger.recorded[-1], PodDevicesReleased)


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_a_pod_that_runs_already_keeps_its_annotation(node: str) -> None:
    extender = ExtenderInMemory()
    extender.share("n1")
    extender.share("n2")
    extender.kube.put("a", gpu=50)
    with leading(extender):
        extender.record("default/a", PodSharingObserved(uid="a", node="n2", started=True))
        assert await bound(extender, "a", node) == ("BoundByOthers" if node == "n2" else "BoundElsewhere")
    assert extender.kube.writes == []


async def test_all_who_wait_for_one_release_go_on() -> None:
    extender = ExtenderInMemory()
    _left_open(extender, "a")
    extender.resume()
    records = extender.effects._records
    reservation = extender.effects.state.open("a")
    assert reservation is not None
    await asyncio.wait_for(asyncio.gather(*(records.released(reservation, "x", "") for _ in range(3))), PATIENCE_S)
    assert not extender.effects.state.open_reservation.rows


async def test_a_pod_is_bound_with_what_was_recorded() -> None:
    extender = ExtenderInMemory()
    extender.share("n1")
    extender.kube.put("a", **HALF)
    with leading(extender):
        assert await bound(extender, "a") == ""
        assert await bound(extender, "a") == ""
    kinds = [type(one) for one in extender.ledger.recorded if "Pod" in type(one).__name__]
    assert kinds == [PodDevicesReserved, PodDevicesBound]


async def _is_empty(extender: ExtenderInMemory) -> bool:
    return not extender.effects.state.open_reservation.rows
