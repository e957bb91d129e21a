"""Containers of one node that hold a card each, as its agent reports them."""

from gpuledger.events.allocation import AllocatedDevices, AllocationEnded, AllocationObserved
from gpuledger.events.envelope import Decoded
from support.events import AGENT, event


def held(number: int, name: str, at: float) -> Decoded:
    """A container of a pod of that name begins to hold a card of its own, some hours after the start of all tests."""
    data = AllocationObserved(
        node="n1",
        namespace="ns",
        pod=name,
        container="c",
        resources=(AllocatedDevices(resource="r", devices=(f"GPU-{name}",)),),
    )
    return event(data, _name(name), number=number, at=at, source=AGENT)


def ended(number: int, name: str, at: float) -> Decoded:
    """It lets go of it."""
    return event(AllocationEnded(), _name(name), number=number, at=at, source=AGENT)


def _name(pod: str) -> str:
    return f"n1/ns/{pod}/c"
