"""A node whose simulated cards are set up for pools: its clock stands still, and its driver fails on demand.

Whatever is done to the hardware is checked as it happens: nothing that is offered or in use may be taken away.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuledger.agent.board import Board, DeviceUnit
from gpuledger.agent.hardware.api import Readings, Survey, Unregistered, Xid
from gpuledger.agent.hardware.errors import HardwareError, UnsupportedError
from gpuledger.agent.hardware.simulated import SimulatedHardware
from gpuledger.agent.part import AgentFact
from gpuledger.agent.setup.part import PoolSetup
from gpuledger.agent.setup.situation import SETTLE_S
from gpuledger.agent.survey_history import SurveyHistory, with_survey
from gpuledger.domain.mig.geometry import Instance
from gpuledger.events.device import DevicePoolApplied, DevicePoolRefused, DevicePoolReleased
from gpuledger.events.node import WantedDevice

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SETTLED_S = SETTLE_S + 1
SMALL, HALF = "1g.10gb", "3g.40gb"
ROUNDS_MAX = 50


class DictStore:
    """Keeps in memory."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        return self.values.get(name)

    async def put(self, name: str, value: bytes) -> None:
        self.values[name] = value


class WatchedCalls:
    """Calls that block nobody. After `fail_at` changes the next one fails; surveys of the cards raise `blind`."""

    kind = "simulated"

    def __init__(self, hardware: SimulatedHardware, node: "Node") -> None:
        self._hardware = hardware
        self._node = node
        self.fail_at: int | None = None
        self.survey_error: HardwareError | None = None
        self.changes: list[str] = []
        self.surveys = 0

    async def survey(self) -> Survey:
        self.surveys += 1
        if self.survey_error is not None:
            raise self.survey_error
        return self._hardware.survey()

    async def readings(self, address: str) -> Readings:
        return self._hardware.readings(address)

    def unregistered(self) -> dict[str, Unregistered]:
        return {}

    async def users(self, address: str) -> frozenset[str]:
        return self._hardware.users(address)

    async def set_mig(self, address: str, *, enabled: bool) -> bool:
        assert not self._node.used_on(address), "the mode of a card in use is left alone"
        assert not [unit for unit in self._node.units() if unit.address == address], "and of one that is offered"
        self._change(f"mig {'on' if enabled else 'off'}")
        return self._hardware.set_mig(address, enabled=enabled)

    async def create_instance(self, address: str, profile: str, start: int) -> Instance:
        self._change(f"create {profile}")
        return self._hardware.create_instance(address, profile, start)

    async def destroy_instance(self, address: str, uuid: str) -> None:
        assert uuid not in self._node.used_uuids(), "what a container has is left alone"
        assert uuid not in {unit.uuid for unit in self._node.units()}, "and what is offered"
        self._change("destroy")
        self._hardware.destroy_instance(address, uuid)

    async def next_xid(self) -> Xid:
        raise HardwareError("nobody waits here")

    def _change(self, what: str) -> None:
        if self.fail_at is not None:
            self.fail_at -= 1
            if self.fail_at < 0:
                self.fail_at = None
                raise UnsupportedError(f"{what} was to fail")
        self.changes.append(what)


class Node:
    """A node, its part that sets up, and what it told."""

    def __init__(self, spec: str = "2xA100") -> None:
        self.hardware = SimulatedHardware(spec)
        self.keep = DictStore()
        self.facts: list[AgentFact] = []
        self.now = 1000.0
        self.calls = WatchedCalls(self.hardware, self)
        self.board = Board()
        self.setup = self._part()
        self.in_use: dict[str, set[str]] = {}
        self.sightings = SurveyHistory()

    def _part(self) -> PoolSetup:
        return PoolSetup(self.calls, self.board, self.keep, clock=lambda: NOON, now=lambda: self.now)

    def restart(self) -> None:
        """Let the agent begin anew: its board is empty, and its clock another one."""
        self.board = Board()
        self.now = 5.0
        self.sightings = SurveyHistory(identities=self.sightings.identities)
        self.setup = self._part()

    def discover(self) -> None:
        """Put on the board what the other parts see."""
        self.sightings = with_survey(self.sightings, self.hardware.survey())
        self.board.put(survey=self.sightings.survey)

    def use(self, resource: str, *ids: str) -> None:
        """Let containers have units of a resource, and of that no others."""
        self.in_use[resource] = set(ids)
        self.see_use()

    def see_use(self) -> None:
        self.board.put(in_use={resource: frozenset(ids) for resource, ids in self.in_use.items() if ids})

    def set_desired(self, *wishes: WantedDevice) -> None:
        self.board.put(desired=wishes)

    async def reconcile(self, after_s: float = 0.0) -> float | None:
        """See, and do what there is to do, some time later."""
        self.now += after_s
        self.discover()
        return await self.setup.reconcile(self._record)

    async def settle(self, within_s: float = 1000.0) -> None:
        """Work until nothing is left but to wait for something else."""
        end = self.now + within_s
        for _ in range(ROUNDS_MAX):
            until = await self.reconcile()
            if until is None or until > end:
                return
            self.now = max(self.now, until)

    async def _record(self, facts: Sequence[AgentFact]) -> None:
        self.facts += facts

    def recorded(self) -> list[tuple[Any, ...]]:
        """The facts recorded since the last call."""
        facts, self.facts = self.facts, []
        return [_words(fact) for fact in facts]

    def units(self) -> list[DeviceUnit]:
        return [unit for offer in self.board.state.offers for unit in offer.units]

    def offered(self) -> dict[str, list[str]]:
        return {offer.resource: [unit.id for unit in offer.units] for offer in self.board.state.offers}

    def used_uuids(self) -> set[str]:
        """What containers have, and processes use."""
        ids = {each.partition("::")[0] for ids in self.in_use.values() for each in ids}
        return ids | {uuid for card in self.cards() for uuid in self.hardware._cards[card.address].users}

    def used_on(self, address: str) -> set[str]:
        card = next(card for card in self.cards() if card.address == address)
        return self.used_uuids() & {card.uuid or "", *(each.uuid for each in card.instances)}

    def cards(self) -> list[Any]:
        return [card.facts for card in self.hardware._cards.values()]

    def card(self, index: int = 0) -> Any:
        return self.cards()[index]


def _words(fact: AgentFact) -> tuple[Any, ...]:
    match fact.data:
        case DevicePoolApplied(pool=pool, partitions=count):
            return fact.subject, "applied", pool, count
        case DevicePoolRefused(pool=pool, reason=reason):
            return fact.subject, "refused", pool, reason
        case DevicePoolReleased(pool=pool):
            return fact.subject, "released", pool
    raise AssertionError(f"{fact.data} is nothing of this part")


def desired(node: Node, index: int = 0, pool: str = "p", **other: Any) -> WantedDevice:
    """A pool's order for a card of the node: the whole of it, unless `other` has something else."""
    card = node.card(index)
    if "mig_profile" in other:
        other["unit"] = "MIG"
    fields = {
        "device": f"gpu-{index}",
        "uuid": card.uuid,
        "pci_address": card.address,
        "pool": pool,
        "resource": f"gpu.deckhouse.io/{pool}",
        "unit": "Card",
        "asked_at": NOON,
    }
    return WantedDevice.model_validate({**fields, **other})


def later(of: WantedDevice, minutes: int = 1, **other: Any) -> WantedDevice:
    """The same order with a later time."""
    return of.model_copy(update={"asked_at": of.asked_at + timedelta(minutes=minutes), **other})


async def ready(**other: Any) -> Node:
    """A node whose first card is set up for a pool."""
    node = Node()
    node.see_use()
    node.set_desired(desired(node, **other))
    await node.settle()
    node.recorded()
    node.calls.changes.clear()
    return node


def desired_list(node: Node) -> tuple[WantedDevice, ...]:
    return node.board.state.desired or ()
