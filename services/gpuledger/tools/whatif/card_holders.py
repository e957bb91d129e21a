"""Which pods held cards at moments of the past, by the rule of drains: MIG instances and devices of claims count too.

The rows of allocations say which units each container had, and the ledger which cards these were: what agents found of
their nodes' cards, and what ResourceSlices said of their devices. Both are folded up to each moment, as the node writer
folds them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.domain.fact import Fact
from gpuledger.edge.nodewriter.holders import HOLDER_HANDLERS, Holders
from gpuledger.events.allocation import AllocatedClaim, AllocatedDevices, AllocationObserved
from gpuledger.events.envelope import Event, decode
from gpuledger.events.errors import EventError
from gpuledger.events.node import NodeDevicesObserved
from gpuledger.events.position import ORIGIN
from gpuledger.events.slice import SlicePublished
from gpuledger.ledger.api import Message
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.named_events import messages_about

SOURCE: Final = "what-if"
CARD: Final = "GPU-"

PodNames = tuple[str, str]
"""A pod by its namespace and name."""


class HeldUnit(NamedTuple):
    """A unit that a container of a pod had since a time; `claim`, `driver` and `pool` are those of a claim's device."""

    namespace: str
    pod: str
    allocation: str
    device: str
    claim: str | None
    driver: str | None
    pool: str | None
    since: datetime

    @property
    def names(self) -> PodNames:
        """Which pod it is."""
        return self.namespace, self.pod


class Moment(NamedTuple):
    """Who of these units' containers held one of the devices on a node then."""

    node: str
    at: datetime
    devices: Collection[str]
    units: Sequence[HeldUnit]


async def holders_at(backend: Backend, moments: Mapping[int, Moment]) -> dict[int, dict[PodNames, bool]]:
    """By place, the pods that held a device then, and (False) those of which the ledger does not say whether they did.

    Raises:
        DatabaseUnavailableError: the index of events cannot be read.
    """
    return answered(moments, await _facts(backend, moments)) if moments else {}


def answered(moments: Mapping[int, Moment], facts: Sequence[Fact]) -> dict[int, dict[PodNames, bool]]:
    """The answers by place, from facts in the order of the log."""
    holders, found = Holders(), dict[int, dict[PodNames, bool]]()
    steps: list[tuple[datetime, int, Fact | int]] = [(fact.event.time, 0, fact) for fact in facts]
    for place, moment in moments.items():
        steps += [(fact.event.time, 1, fact) for fact in _containers(place, moment)]
        steps.append((moment.at, 2, place))
    for _, _, step in sorted(steps, key=lambda one: one[:2]):
        if isinstance(step, Fact):
            HOLDER_HANDLERS[type(step.event.data)](holders, step, step.event.data)
        else:
            found[step] = _answer(holders, moments[step], _prefix(step))
    return found


def _answer(holders: Holders, moment: Moment, prefix: str) -> dict[PodNames, bool]:
    found: dict[PodNames, bool] = {}
    for row in holders.container_units.where("node", moment.node):
        if row.allocation.startswith(prefix):
            uuids = list(holders.uuids(row))
            holds = any(one is not None and not one.isdisjoint(moment.devices) for one in uuids)
            if holds or None in uuids:
                names = row.namespace, row.pod
                found[names] = found.get(names, False) or holds
    return found


def _prefix(place: int) -> str:
    return f"{place}/"


def _containers(place: int, moment: Moment) -> Iterator[Fact]:
    """What each container had then, as its node's agent reports it, from the first of its units on."""
    by_container: dict[str, list[HeldUnit]] = {}
    for unit in moment.units:
        by_container.setdefault(unit.allocation, []).append(unit)
    for allocation, units in by_container.items():
        devices = tuple(one.device for one in units if one.driver is None)
        data = AllocationObserved.model_construct(
            node=moment.node,
            namespace=units[0].namespace,
            pod=units[0].pod,
            container="",
            resources=(AllocatedDevices.model_construct(resource="", devices=devices),) if devices else (),
            claims=tuple(
                AllocatedClaim.model_construct(
                    claim=one.claim or "", driver=one.driver, pool=one.pool, device=one.device
                )
                for one in units
                if one.driver is not None
            ),
        )
        subject, since = f"{_prefix(place)}{allocation}", min(one.since for one in units)
        yield Fact(Event(subject, SOURCE, data.TYPE, subject, since, data, SOURCE, 1), ORIGIN, 0)


async def _facts(backend: Backend, moments: Mapping[int, Moment]) -> list[Fact]:
    """What says which cards the units are; whole cards say it themselves."""
    units = [(one.node, unit) for one in moments.values() for unit in one.units]
    nodes, found = {node for node, unit in units if not unit.device.startswith(CARD)}, list[Fact]()
    for node in sorted(nodes):
        async for messages in messages_about(backend, NodeDevicesObserved.AGGREGATE, node, NodeDevicesObserved.EVENT):
            found += _decoded(messages)
    pools = {(unit.driver, unit.pool) for _, unit in units if unit.driver is not None}
    if pools:
        async for messages in messages_about(backend, SlicePublished.AGGREGATE):
            found += (one for one in _decoded(messages) if _may_be_of(one, pools))
    return found


def _decoded(messages: Sequence[Message]) -> Iterator[Fact]:
    for message in messages:
        try:
            event = decode(message.data)
        except EventError:
            continue
        if type(event.data) in HOLDER_HANDLERS:
            yield Fact(event, message.sequence, message.recorded_ns)


def _may_be_of(fact: Fact, pools: Collection[tuple[str | None, str | None]]) -> bool:
    """Whether it is about a slice of one of the pools; a withdrawal does not say whose slice it was."""
    data = fact.event.data
    return not isinstance(data, SlicePublished) or (data.driver, data.pool) in pools
