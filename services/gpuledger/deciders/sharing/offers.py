"""Which devices a node offers for sharing, which of its cards it does not, and why. Pure.

A card has one owner: a pool, a DRA driver, or sharing. A card of a labelled node is offered once `pools` has decided to
leave it to sharing, so that no order of facts gives it to both.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

import orjson

from gpuledger.api.phases import DeviceState
from gpuledger.api.reasons import NotSharedReason
from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA, WHOLE, label_value
from gpuledger.domain.sharing.offered_rows import NOTHING_OBSERVED, SharingCard, SharingNode
from gpuledger.domain.sharing.offered_state import Offering
from gpuledger.events.device import Card
from gpuledger.events.node_sharing import Nic
from gpuledger.events.sharing import (
    VFS_MAX,
    CardOwner,
    NodeDevicesShared,
    NotSharedCard,
    SharedDevice,
    SharedFunction,
    SharedFunctionGroup,
    SharedTopology,
)

BYTES_PER_MIB: Final = 1 << 20
MODEL_LABEL: Final = "model"
"""The label of a shared GPU with its model."""

FOUND_BY_AGENTS: Final = frozenset({GPU, RDMA})
"""Types of devices that no file declares."""


class _Observed(NamedTuple):
    """What a node's agent observes: cards by PCI address, NICs in their order, and declared devices."""

    cards: Mapping[str, Card]
    nics: tuple[Nic, ...]
    declared: tuple[SharedDevice, ...]


def offer_of(state: Offering, node: str) -> NodeDevicesShared | None:
    """What the node offers from now on; None where it was never labelled, and nothing was decided of it."""
    label = state.node.get(node)
    if label is None:
        return None
    if not label.is_labelled:
        held = _held(state, node)
        return NodeDevicesShared(enabled=bool(held), devices=held, labelled_at=label.since)
    observed = _observed(state, node)
    cards = sorted(state.card.where("node", node), key=lambda row: (row.pci_address or "", row.name))
    excluded = {row.name: why for row in cards if (why := _exclusion(state, label, row, observed)) is not None}
    gpus = [row for row in cards if row.name not in excluded]
    minors = _minors(cards, gpus, observed.cards, _former_minors(state, node))
    devices = [_gpu(row, minors[row.name], observed.cards.get(row.pci_address or "")) for row in gpus]
    devices.sort(key=lambda one: one.minor)
    # A label that went and came back: what pods still hold is no pool's, or it would be once the label goes again.
    owned = {why.id for why in excluded.values() if why.owner != "none"}
    held = () if label.is_left else tuple(one for one in _held(state, node) if one.id not in owned)
    models = (row.product for row in sorted(gpus, key=lambda row: minors[row.name]) if row.product is not None)
    policy = label.partition_policy
    return NodeDevicesShared(
        devices=(*devices, *held, *_rdma(observed.nics), *observed.declared),
        not_shared=tuple(one for one in excluded.values() if one.id not in {each.id for each in held}),
        model=next(map(label_value, models), None) or None,
        partition_policy="Honor" if policy == "Honor" else "Prefer" if policy == "Prefer" else None,
        labelled_at=label.since,
    )


def _held(state: Offering, node: str) -> tuple[SharedDevice, ...]:
    """The GPUs of the last offer that pods hold still: until these are gone nobody else gets them."""
    row = state.offer.get(node)
    last = () if row is None else NodeDevicesShared.model_validate(orjson.loads(row.offer)).devices
    gpus = (one for one in last if one.type == GPU)
    return tuple(one.model_copy(update={"healthy": False}) for one in gpus if state.is_held(node, one.id, one.minor))


def switch_of(pci_path: Sequence[str], address: str) -> str:
    """The PCIe switch that a device is connected to: the address of the switch's upstream port.

    The last bridge before a device is a port of the switch, and the one before that leads to it. A device right at a
    root port has that port to itself, and one whose path is unknown itself. PCI addresses are unique on a node.
    """
    if len(pci_path) > 1:
        return pci_path[-2]
    return pci_path[0] if pci_path else address


def _observed(state: Offering, node: str) -> _Observed:
    row = state.hardware.get(node)
    if row is None:
        return _Observed({}, (), ())
    cards = [Card.model_validate(one) for one in orjson.loads(row.cards)]
    nics = [Nic.model_validate(one) for one in orjson.loads(row.nics)]
    return _Observed(
        {one.pci_address: one for one in cards},
        tuple(sorted(nics, key=lambda one: one.pci_address)),
        _declared(row.declared or NOTHING_OBSERVED),
    )


def _declared(text: str) -> tuple[SharedDevice, ...]:
    """The devices that files declare, of types that the agent does not find itself: those have other owners as well."""
    devices = (SharedDevice.model_validate(one) for one in orjson.loads(text))
    others = (one for one in devices if one.type not in FOUND_BY_AGENTS and one.resources.keys() == {one.type})
    return tuple(sorted(others, key=lambda one: (one.type, one.minor)))


def _exclusion(state: Offering, label: SharingNode, row: SharingCard, observed: _Observed) -> NotSharedCard | None:
    """Why a card of a labelled node is not shared; None if it is."""
    return next(_exclusions(state, label, row, observed.cards.get(row.pci_address or "")), None)


def _exclusions(state: Offering, label: SharingNode, row: SharingCard, card: Card | None) -> Iterator[NotSharedCard]:
    """All reasons, the owners that others gave it first."""
    driver = None if row.uuid is None else state.driver_of(row.uuid)
    if row.pool is not None:
        yield _not_shared(row, "pool", NotSharedReason.IN_POOL, f"{row.pool} has it.")
    if driver is not None:
        yield _not_shared(row, "dra", NotSharedReason.PUBLISHED, f"The DRA driver {driver} publishes it.")
    if row.ignored:
        yield _not_shared(row, "none", NotSharedReason.IGNORED, "Its GPUDevice has the label that excludes it.")
    if not row.managed:
        yield _not_shared(row, "none", NotSharedReason.NOT_MANAGED, "Its node is not managed.")
    if row.uuid is None or row.memory_mib is None:
        yield _not_shared(row, "none", NotSharedReason.UNIDENTIFIED, "Nobody reports its UUID and its memory yet.")
    if card is not None and card.mig_enabled:
        yield _not_shared(row, "none", NotSharedReason.MIG, "MIG divides it; turn MIG off to share it.")
    if not label.is_left:
        yield _not_shared(row, "none", NotSharedReason.NOT_LEFT, "Pools have not left the node's cards to sharing yet.")


def _not_shared(row: SharingCard, owner: CardOwner, reason: NotSharedReason, message: str) -> NotSharedCard:
    return NotSharedCard(id=row.uuid or row.name, owner=owner, reason=reason, message=message)


def _former_minors(state: Offering, node: str) -> dict[str, int]:
    """The minors of the node's GPUs in its last offer, by UUID."""
    row = state.offer.get(node)
    devices = [] if row is None else orjson.loads(row.offer).get("devices", ())
    return {one["id"]: one["minor"] for one in devices if one["type"] == GPU and "id" in one}


def _minors(
    cards: Sequence[SharingCard], gpus: Sequence[SharingCard], observed: Mapping[str, Card], former: Mapping[str, int]
) -> dict[str, int]:
    """The minor of each GPU by its name, no two the same: the driver's, else the one it had, else a free one.

    The free one is its place among all cards of the node in the order of their PCI addresses, or the next.
    """
    found: dict[str, int] = {}
    reported = {row.name: card.minor for row in gpus if (card := observed.get(row.pci_address or "")) is not None}
    places = {row.name: place for place, row in enumerate(cards)}
    for row in gpus:
        _take(found, row.name, reported.get(row.name))
    for row in gpus:
        _take(found, row.name, former.get(row.uuid or ""))
    for row in gpus:
        _take(found, row.name, next(at for at in count(places[row.name]) if at not in found.values()))
    return found


def _take(found: dict[str, int], name: str, minor: int | None) -> None:
    """Give a GPU the minor, unless it has one or another GPU has that."""
    if minor is not None and name not in found and minor not in found.values():
        found[name] = minor


def _gpu(row: SharingCard, minor: int, card: Card | None) -> SharedDevice:
    answers = card is not None and card.uuid is not None
    memory = (row.memory_mib or 0) * BYTES_PER_MIB
    labels = {} if row.product is None else {MODEL_LABEL: label_value(row.product)}
    return SharedDevice(
        type=GPU,
        minor=minor,
        id=row.uuid,
        healthy=answers and not row.missing and row.state == DeviceState.READY,
        resources={GPU_CORE: WHOLE, GPU_MEMORY: memory, GPU_MEMORY_RATIO: WHOLE},
        topology=None if card is None else _topology(card),
        labels=labels,
        module_id=None if card is None else card.module_id,
    )


def _topology(one: Card | Nic) -> SharedTopology | None:
    """Where a card sits; None where neither its NUMA node nor its path is known. A processor is a NUMA node then."""
    if one.numa_node is None and not one.pci_path:
        return None
    numa = one.numa_node or 0
    return SharedTopology(
        socket=numa if one.socket is None else one.socket,
        numa=numa,
        pcie=switch_of(one.pci_path, one.pci_address),
        bus_id=one.pci_address,
    )


def _rdma(nics: Sequence[Nic]) -> list[SharedDevice]:
    return [
        SharedDevice(
            type=RDMA,
            minor=minor,
            id=nic.pci_address,
            healthy=nic.active,
            resources={RDMA: WHOLE},
            topology=_topology(nic),
            function_groups=_function_groups(nic),
        )
        for minor, nic in enumerate(nics)
    ]


def _function_groups(nic: Nic) -> tuple[SharedFunctionGroup, ...]:
    """Its virtual functions are one group: nothing tells them apart."""
    functions = tuple(SharedFunction(minor=at, bus_id=bus_id) for at, bus_id in enumerate(nic.functions[:VFS_MAX]))
    return (SharedFunctionGroup(functions=functions),) if functions else ()
