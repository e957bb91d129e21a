"""Devices of a node that can take what is asked of one device, and their order. Pure.

Whether something fits is decided here alone: every asked amount, and what follows from it on the chosen device (memory
of the ratio), is at most what is left of the device. So no device is ever oversold.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from gpuledger.api.sharing import GPU_MEMORY, Strategy
from gpuledger.domain.sharing.conversion import completed
from gpuledger.domain.sharing.model import (
    NOTHING,
    Allocated,
    Amounts,
    Device,
    LabelSelector,
    NodeState,
    PodRequest,
    Refusal,
    TypeRequest,
    VirtualFunction,
)
from gpuledger.domain.sharing.scores import Scoring, score
from gpuledger.domain.sharing.selectors import selects
from gpuledger.domain.sharing.usage import NO_DEVICES, NO_FUNCTIONS, Usage, designation, limit_of


class Offer(NamedTuple):
    """A node to which a request is put: what is held there (without preempted pods), and how devices are compared."""

    node: NodeState
    usage: Usage
    request: PodRequest
    scoring: Scoring

    def devices(self, kind: str) -> Collection[Device]:
        """The node's devices of a type, by minor, unhealthy ones too."""
        return self.node.devices.get(kind, {}).values()

    def in_use(self, device: Device) -> bool:
        """Whether anybody holds anything of the device."""
        return self.usage.in_use(device.type, device.minor)

    def score(self, device: Device, asked: TypeRequest) -> int:
        """The device's score with what is asked of one device, 0 to 100."""
        return score(device.resources, self.usage.of(device.type, device.minor), asked.per_device, self.scoring)


class FittingDevice(NamedTuple):
    """A device that can take the request, and what the pod would get of it."""

    device: Device
    amounts: Amounts = {}
    function: VirtualFunction | None = None

    @property
    def minor(self) -> int:
        """The device's minor."""
        return self.device.minor

    @property
    def switch(self) -> str | None:
        """The PCIe switch of the device; None if nobody knows it."""
        return None if self.device.topology is None else self.device.topology.pcie

    @property
    def allocated(self) -> Allocated:
        """What the pod gets."""
        return Allocated(
            self.device.minor, self.amounts, () if self.function is None else (self.function,), self.device.id
        )


def fitting(offer: Offer, asked: TypeRequest) -> list[FittingDevice]:
    """All devices that can take what is asked of one device, by minor."""
    limits = designation(offer.request.designated, asked.type)
    held = offer.usage.amounts.get(asked.type, NO_DEVICES)
    amounts_of: dict[int, Amounts] = {}
    found = []
    for device in _allowed(offer, asked):
        memory = device.resources.get(GPU_MEMORY, 0)
        amounts = amounts_of.get(memory) or amounts_of.setdefault(memory, completed(asked.per_device, device.resources))
        if _has_room(device.resources, held.get(device.minor, NOTHING), amounts) and (
            limits is None or _is_designated(device, amounts, limits)
        ):
            found.append(FittingDevice(device, amounts))
    selector = asked.hint.vf_selector
    return found if selector is None else list(_with_functions(offer, found, selector, limits or {}))


def _allowed(offer: Offer, asked: TypeRequest) -> list[Device]:
    """The healthy devices that the pod lets itself be given."""
    healthy = [one for one in offer.devices(asked.type) if one.healthy]
    selector, numa_nodes = asked.hint.selector, offer.request.numa_nodes
    if selector is None and numa_nodes is None:
        return healthy
    return [one for one in healthy if _is_allowed(one, selector, numa_nodes)]


def _is_allowed(device: Device, selector: LabelSelector | None, numa_nodes: Set[int] | None) -> bool:
    """Whether the pod lets itself be given the device. One without a topology is at no NUMA node."""
    if numa_nodes is not None and (device.topology is None or device.topology.numa not in numa_nodes):
        return False
    return selector is None or selects(selector, device.labels)


def _has_room(total: Amounts, used: Amounts, amounts: Amounts) -> bool:
    # This is the innermost loop of scheduling, and all() would take twice as long.
    for resource, amount in amounts.items():  # noqa: SIM110
        if total.get(resource, 0) - used.get(resource, 0) < amount:
            return False
    return True


def _is_designated(device: Device, amounts: Amounts, limits: Mapping[int, Allocated]) -> bool:
    """Whether so much of the device was designated to the pod."""
    return _has_room(limit_of(device, limits.get(device.minor)), NOTHING, amounts)


def _with_functions(
    offer: Offer, candidates: Iterable[FittingDevice], selector: LabelSelector, limits: Mapping[int, Allocated]
) -> Iterator[FittingDevice]:
    """The candidates that have a free virtual function, each with the one that has the lowest bus id, as text."""
    for one in candidates:
        free = _free_functions(offer, one.device, selector, limits.get(one.device.minor))
        if free:
            yield one._replace(function=min(free, key=lambda vf: vf.bus_id))


def _free_functions(
    offer: Offer, device: Device, selector: LabelSelector, limit: Allocated | None
) -> list[VirtualFunction]:
    """The device's functions that the selector selects and nobody holds; if some are designated, only these."""
    held = offer.usage.functions.get((device.type, device.minor), NO_FUNCTIONS)
    designated = None if limit is None or not limit.functions else {vf.bus_id for vf in limit.functions}
    groups = (group.functions for group in device.function_groups if selects(selector, group.labels))
    return [
        vf
        for functions in groups
        for vf in functions
        if vf.bus_id not in held and (designated is None or vf.bus_id in designated)
    ]


def ranked(offer: Offer, asked: TypeRequest, candidates: Iterable[FittingDevice]) -> list[FittingDevice]:
    """The candidates, given by minor, in the order in which they are taken."""
    if offer.scoring.strategy is Strategy.MINOR_ORDER:
        return list(candidates)
    return in_order((one, offer.score(one.device, asked)) for one in candidates)


def in_order(scored: Iterable[tuple[FittingDevice, int]], preferred: Set[int] = frozenset()) -> list[FittingDevice]:
    """Candidates by their scores: preferred minors before all others, then the higher score, then the lower minor."""
    order = sorted(scored, key=lambda pair: (pair[0].device.minor not in preferred, -pair[1], pair[0].device.minor))
    return [one for one, _ in order]


def insufficient(offer: Offer, asked: TypeRequest, candidates: Sequence[FittingDevice], where: str = "") -> Refusal:
    """Too few devices have room, or too few that are `where` they have to be. Evicting other pods may help."""
    each = ", ".join(f"{resource} {amount}" for resource, amount in sorted(asked.per_device.items()))
    if asked.hint.vf_selector is not None:
        each += " and a virtual function"
    near = f" {where}" if where else ""
    return Refusal(
        f"Insufficient {asked.type} devices: {asked.number}{near} with {each} each asked for, "
        f"{len(candidates)} of {len(offer.devices(asked.type))} have room."
    )
