"""The nodes of a simulated fleet and every card that ever sits in them, computed from a spec and a seed.

The same spec and seed always give the same nodes, cards, UUIDs and serial numbers, so that a restarted fleet is the
same one. All randomness comes from `random.Random` seeded with names.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from gpuledger.api.labels import VENDOR_NVIDIA
from gpuledger.api.sharing import SharingNames
from gpuledger.events.device import Card
from gpuledger.events.node_sharing import Nic
from gpuledger.tools.simulation import board
from gpuledger.tools.simulation.hardware import GPU_RESOURCE, PROFILES, WHOLE_MILLI, Model, NodeProfile, Partition

NODES_MAX: Final = 5_000
GPUS_MAX: Final = 16
LIVES_MAX: Final = 1_000
"""Cards that may sit in a slot one after the other."""

ZONES: Final = ("zone-a", "zone-b", "zone-c")
CPU_PER_GPU: Final = 16
MEMORY_MIB_PER_GPU: Final = 131_072
HOT_CARDS_SHARE: Final = 0.005
"""The share of a fleet's cards that cause most failures; at least one card does."""

FAILURES_MAX: Final = 1_000_000

EXAMPLE: Final = "nodes=16,gpus=8,profile=h200"
_BOUNDS: Final = {"nodes": NODES_MAX, "gpus": GPUS_MAX, "failures": FAILURES_MAX, "sharing": NODES_MAX}


class SimulationError(Exception):
    """The fleet cannot be simulated as requested."""


class FleetSpecError(SimulationError):
    """The value of `--fleet` is invalid; the message says where, and gives an example."""


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """How many nodes a fleet has, how many cards each, and of which profile.

    `failures` is how many cards fail in 1,000 simulated days of a node; None: as many as the rates say. `sharing` is
    how many of the nodes, the last ones, give their cards to sharing; None: none.
    """

    nodes: int = 4
    gpus: int = 8
    profile: str = "h200"
    failures: int | None = None
    sharing: int | None = None

    @classmethod
    def parse(cls, text: str) -> "FleetSpec":
        """The spec that a text such as `nodes=16,gpus=8,profile=h200` gives.

        Raises:
            FleetSpecError: a part is none, unknown, given twice or out of bounds.
        """
        given: dict[str, str] = {}
        for part in text.split(","):
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not (equals and key and value):
                raise FleetSpecError(f"--fleet: {part.strip()!r} is not `key=value`; give, for example, {EXAMPLE}.")
            if key not in _KEYS:
                raise FleetSpecError(f"--fleet: there is no {key!r}; known are {', '.join(_KEYS)}.")
            if key in given:
                raise FleetSpecError(f"--fleet: {key} is given twice; give it once.")
            given[key] = value
        numbers = {key: _number(key, given[key]) for key in _BOUNDS if key in given}
        default = cls()
        return cls(
            numbers.get("nodes", default.nodes),
            numbers.get("gpus", default.gpus),
            _profile(given.get("profile", default.profile)),
            numbers.get("failures"),
            numbers.get("sharing"),
        )

    def __str__(self) -> str:
        failures = "" if self.failures is None else f",failures={self.failures}"
        sharing = "" if self.sharing is None else f",sharing={self.sharing}"
        return f"nodes={self.nodes},gpus={self.gpus},profile={self.profile}{failures}{sharing}"


_KEYS: Final = tuple(field.name for field in fields(FleetSpec))


def _number(key: str, text: str) -> int:
    most = _BOUNDS[key]
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(most)) else 0
    if not 1 <= number <= most:
        raise FleetSpecError(f"--fleet: {key}={text} is out of bounds; give a whole number from 1 to {most}.")
    return number


def _profile(profile: str) -> str:
    if profile not in PROFILES:
        raise FleetSpecError(f"--fleet: there is no profile {profile!r}; known are {', '.join(PROFILES)}.")
    return profile


class GpuUnit(NamedTuple):
    """A part of a card that one pod can have: the resource, and its share of the card in thousandths."""

    resource: str
    gpu_milli: int


class SlotId(NamedTuple):
    """A slot of a node, by its index from 0."""

    node: str
    slot: int


class FleetNode(NamedTuple):
    """A node of the fleet. Addresses are those of its slots, as the kernel writes them.

    `shared_by` is the label by which people give its cards to sharing; None: they do not. No device plugin offers the
    cards of a node that does.
    """

    name: str
    zone: str
    profile: NodeProfile
    addresses: tuple[str, ...]
    shared_by: str | None = None

    @property
    def model(self) -> Model:
        """The model of its cards."""
        return self.profile.model

    @property
    def cpus(self) -> int:
        """Its CPU cores."""
        return CPU_PER_GPU * len(self.addresses)

    @property
    def memory_mib(self) -> int:
        """Its memory."""
        return MEMORY_MIB_PER_GPU * len(self.addresses)

    def partitions(self, slot: int) -> tuple[Partition, ...]:
        """The MIG instances of the card in a slot; none where the card is whole."""
        layouts = self.profile.layouts
        return layouts[slot % len(layouts)] if layouts else ()

    def units(self, slot: int) -> tuple[GpuUnit, ...]:
        """The units of the card in a slot."""
        if self.shared_by is not None:
            return ()
        return _units(self.partitions(slot))

    def resources(self, slots: Iterable[int]) -> Counter[str]:
        """How many units of each resource the cards in these slots offer."""
        return Counter(unit.resource for slot in slots for unit in self.units(slot))


@lru_cache(maxsize=64)
def _units(partitions: tuple[Partition, ...]) -> tuple[GpuUnit, ...]:
    return tuple(GpuUnit(one.resource, one.gpu_milli) for one in partitions) or (GpuUnit(GPU_RESOURCE, WHOLE_MILLI),)


class Fleet:
    """The nodes of a spec and a seed, and every card that ever sits in them; `names` are those of shared devices."""

    def __init__(self, spec: FleetSpec, seed: int, names: SharingNames = SharingNames()) -> None:  # noqa: B008
        self.spec = spec
        self.seed = seed
        tag = f"{Random(f'{seed}/fleet').getrandbits(16):04x}"  # noqa: S311 - no secret
        self.nodes = {node.name: node for node in (_node(spec, tag, index, names) for index in range(spec.nodes))}
        """By name, in their order."""

        slot_ids = self.slot_ids()
        self.gpu_milli = {
            unit.resource: unit.gpu_milli for node, slot in slot_ids for unit in self.nodes[node].units(slot)
        }
        """The thousandths of a card that a unit of each resource is."""

    def slot_ids(self) -> list[SlotId]:
        """Every slot."""
        return [SlotId(node.name, slot) for node in self.nodes.values() for slot in range(len(node.addresses))]

    def hot_slots(self) -> list[SlotId]:
        """The slots of the cards that cause most failures."""
        slot_ids = self.slot_ids()
        chance = Random(f"{self.seed}/hot")  # noqa: S311 - no secret
        return chance.sample(slot_ids, max(1, round(HOT_CARDS_SHARE * len(slot_ids))))

    def card(self, slot_id: SlotId, life: int) -> Card:
        """The card that sits in a slot as the `life`-th, from 0."""
        node = self.nodes[slot_id.node]
        model = node.model
        chance = Random(f"{self.seed}/{slot_id.node}/{slot_id.slot}/{life}")  # noqa: S311 - no secret
        return Card(
            uuid=f"GPU-{UUID(int=chance.getrandbits(128), version=4)}",
            serial=str(chance.randrange(1_320_000_000_000, 1_660_000_000_000)),
            pci_address=node.addresses[slot_id.slot],
            pci_vendor=VENDOR_NVIDIA,
            pci_device=model.pci_device,
            pci_class=model.pci_class,
            product=model.product,
            memory_mib=model.memory_mib,
            compute_major=model.compute[0],
            compute_minor=model.compute[1],
            precision=model.precision,
            mig_capable=bool(model.mig_profiles),
            mig_strategy=_mig_strategy(node),
            mig_profiles=model.mig_profiles or None,
            **({} if node.shared_by is None else board.place_of_card(slot_id.slot, len(node.addresses))),
        )

    def nics(self, node: str) -> tuple[Nic, ...]:
        """The network cards with RDMA of a node that shares its devices; others have none that matters."""
        found = self.nodes[node]
        return () if found.shared_by is None else board.nics(len(found.addresses))

    def life_of(self, slot_id: SlotId, uuid: str) -> int | None:
        """Which life of a slot a card is; None where the card is not of this fleet."""
        return next((life for life in range(LIVES_MAX) if self.card(slot_id, life).uuid == uuid), None)


def _mig_strategy(node: FleetNode) -> str | None:
    if not node.model.mig_profiles:
        return None
    return "mixed" if node.profile.layouts else "none"


def _node(spec: FleetSpec, tag: str, index: int, names: SharingNames) -> FleetNode:
    profiles = PROFILES[spec.profile]
    profile = profiles[index % len(profiles)]
    digits = len(str(max(spec.nodes, 10)))
    addresses = tuple(sorted(f"0000:{bus:02x}:00.0" for bus in profile.model.buses[: spec.gpus]))
    name = f"{profile.model.family}-{tag}-{index + 1:0{digits}d}"
    shared_by = names.sharing if index >= spec.nodes - (spec.sharing or 0) and not profile.layouts else None
    return FleetNode(name, ZONES[index % len(ZONES)], profile, addresses, shared_by)
