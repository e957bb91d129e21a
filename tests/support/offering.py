"""A log with the deciders of pools and of sharing, each as far behind as a test likes, and facts for it."""

from collections.abc import Iterator
from typing import Any

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.deciders.sharing.projection import SharingProjection
from gpuledger.domain.sharing.offered_state import Offering
from gpuledger.events.device import Card, DeviceAssignmentChanged, Hardware
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeDevicesObserved, NodeGone
from gpuledger.events.node_devices import NodeDeclaredDevicesObserved
from gpuledger.events.node_sharing import Nic, NodeNicsObserved, NodeSharingLabelled, NodeSharingUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN
from gpuledger.events.sharing import (
    AllocatedDevice,
    Allocation,
    NodeDevicesShared,
    PodDevicesReleased,
    PodDevicesReserved,
    PodSharingGone,
    PodSharingObserved,
    SharedDevice,
)
from gpuledger.events.slice import SliceDevice, SlicePublished, SliceWithdrawn
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.fold import Fold
from support import pools
from support.events import GENERATION, event, message

PRODUCT = "NVIDIA H100 80GB HBM3"
MEMORY_MIB = 81_559
POOL = "gpupool/team/whole"


def uuid(number: int) -> str:
    return f"GPU-{number}"


def address(number: int) -> str:
    return f"0000:{0x10 + number:02x}:00.0"


def hardware(number: int, **other: Any) -> Hardware:
    """What inventory shows of the card of that number."""
    given = {
        "uuid": uuid(number),
        "pci_address": address(number),
        "product": PRODUCT,
        "memory_mib": MEMORY_MIB,
        **other,
    }
    return Hardware.model_validate(given)


def card(number: int, **other: Any) -> Card:
    """What an agent observes of the card of that number."""
    return Card.model_validate(
        {**hardware(number).model_dump(exclude_none=True), "pci_vendor": "10de", "pci_device": "2330", **other}
    )


def observed(*cards: Card) -> NodeDevicesObserved:
    return NodeDevicesObserved(cards=cards)


def nics(*found: Nic) -> NodeNicsObserved:
    return NodeNicsObserved(nics=found)


def declaring(*devices: SharedDevice) -> NodeDeclaredDevicesObserved:
    return NodeDeclaredDevicesObserved(devices=devices)


def labelled(policy: Any = None) -> NodeSharingLabelled:
    return NodeSharingLabelled(uid="u1", partition_policy=policy)


def published(*uuids: str) -> SlicePublished:
    """A slice of NVIDIA's DRA driver with these cards."""
    devices = tuple(SliceDevice(name=f"gpu-{at}", attributes={"uuid": one}) for at, one in enumerate(uuids))
    return SlicePublished(
        uid="s", driver="gpu.nvidia.com", pool="n1", pool_generation=1, slice_count=1, devices=devices
    )


def reserved(uid: str, number: int, node: str = "n1") -> PodDevicesReserved:
    """A pod is to get half of a card."""
    allocation: Allocation = {"gpu": (AllocatedDevice(minor=number, id=uuid(number), resources={"gpu-core": 50}),)}
    return PodDevicesReserved(uid=uid, node=node, allocation=allocation, strategy="LeastAllocated")


def bound_elsewhere(uid: str, number: int, node: str = "n1") -> PodSharingObserved:
    """A pod that somebody else gave half of a card, by its minor alone."""
    allocation: Allocation = {"gpu": (AllocatedDevice(minor=number, resources={"gpu-core": 50}),)}
    return PodSharingObserved(uid=uid, node=node, allocation=allocation)


UNLABELLED, WITHDRAWN = NodeSharingUnlabelled(uid="u1"), SliceWithdrawn()

_SOURCES: dict[type[Payload], str] = {
    NodeSharingLabelled: "/watchers/sharingnodes",
    NodeSharingUnlabelled: "/watchers/sharingnodes",
    SlicePublished: "/watchers/slices",
    SliceWithdrawn: "/watchers/slices",
    NodeGone: "/watchers/nodes",
    PodDevicesReserved: "/services/extender",
    PodDevicesReleased: "/services/extender",
    PodSharingObserved: "/watchers/sharingpods",
    PodSharingGone: "/watchers/sharingpods",
}


def source_of(subject: str, data: Payload) -> str:
    """The source of such a fact."""
    if isinstance(data, NodeDevicesObserved | NodeNicsObserved | NodeDeclaredDevicesObserved):
        return f"/nodes/{subject}/agent"
    return _SOURCES.get(type(data)) or pools.source_of(subject, data)


class OfferingLog:
    """The log, and both deciders. Each folds it when it is told to, and its decisions stand where the log ends then."""

    def __init__(self) -> None:
        types = (NodeNicsObserved.TYPE, NodeDeclaredDevicesObserved.TYPE)
        in_force = EnforcedRules([EnforcedRule(name, 1, ORIGIN) for name in types])
        own = Numbering("own", 1)
        self.pools = Fold(PoolsProjection(), GENERATION, numbering=own, enforced=in_force)
        self.sharing = Fold(SharingProjection(), GENERATION, numbering=own, enforced=in_force)
        self.log: list[Message] = []
        self.events: list[Decoded] = []
        self._folded = {"pools": 0, "sharing": 0}
        self._numbers: dict[str, int] = {}
        self._hours = 0

    @property
    def state(self) -> Offering:
        found = self.sharing.state
        assert isinstance(found, Offering)
        return found

    def begin(self, node: str = "n1", cards: int = 2) -> "OfferingLog":
        """The module works, and the node has prepared cards that its agent observes."""
        self.record(MODULE_CONFIG, pools.MET)
        self.record(node, pools.prepared())
        for number in range(cards):
            self.record(f"{node}-{number}", pools.detected(node, hardware(number)))
            self.record(f"{node}-{number}", pools.state("Ready"))
        self.record(node, observed(*(card(number) for number in range(cards))))
        return self

    def append(self, subject: str, data: Payload, at: float | None = None) -> None:
        """Record a fact that nobody folds yet, an hour after the last unless `at` is given."""
        self._hours += 1
        source = source_of(subject, data)
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        self._append(event(data, subject, number=number, at=self._hours if at is None else at, source=source))

    def record(self, subject: str, data: Payload, at: float | None = None) -> list[Decoded]:
        """Record a fact, and have both deciders fold it and what follows; returns what follows."""
        self.append(subject, data, at)
        before = len(self.events)
        self.settle()
        return self.events[before:]

    def step(self, name: str) -> bool:
        """Have one decider fold the next event, if there is one."""
        at = self._folded[name]
        if at >= len(self.log):
            return False
        fold: Fold = getattr(self, name)
        fold.apply(self.log[at])
        self._folded[name] += 1
        for decided in fold.take_decided():
            self._append(decided)
        return True

    def settle(self) -> None:
        """Have both fold all there is."""
        while self.step("pools") or self.step("sharing"):
            pass

    def offer(self, node: str = "n1") -> NodeDevicesShared:
        """The last offer of the node."""
        offers = [one.data for one in self.events if one.subject == node and isinstance(one.data, NodeDevicesShared)]
        return offers[-1]

    def offered(self, node: str = "n1") -> list[str]:
        """The ids of what the node offers."""
        return [one.id or "" for one in self.offer(node).devices]

    def reasons(self, node: str = "n1") -> dict[str, str]:
        """Why the others are not offered."""
        return {one.id: one.reason for one in self.offer(node).not_shared}

    def owners(self) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
        """At each place of the log: the pool of each card by its UUID, and the node that offers it."""
        in_pool: dict[str, str] = {}
        shared: dict[str, dict[str, str]] = {}
        for one in self.events:
            if isinstance(one.data, DeviceAssignmentChanged):
                card_id = uuid(int(one.subject.rpartition("-")[2]))
                in_pool.pop(card_id, None)
                if one.data.pool is not None:
                    in_pool[card_id] = one.data.pool
            elif isinstance(one.data, NodeDevicesShared):
                shared[one.subject] = {device.id or "": one.subject for device in one.data.devices}
            yield dict(in_pool), {card_id: node for offer in shared.values() for card_id, node in offer.items()}

    def _append(self, one: Decoded) -> None:
        self.events.append(one)
        self.log.append(message(one, len(self.log) + 1))
