"""One simulated card: its partitions, users and health. Pure; it knows no threads and no other card."""

from contextlib import suppress
from typing import Self

from gpuledger.agent.hardware.api import WHOLE_CARD, CardFacts, Readings
from gpuledger.agent.hardware.errors import BusyError, CardLostError, UnsupportedError
from gpuledger.agent.hardware.simulated_faults import (
    EFFECTS,
    EVENTS_REFUSED,
    OFF_BUS,
    RECOVER,
    RESET_NEEDED,
    XID_EFFECTS,
    XID_FALLEN_OFF,
    InjectedFault,
    InjectedFaultError,
)
from gpuledger.agent.hardware.simulated_node import uuid_of
from gpuledger.domain.mig.geometry import Instance, find_profile, obstacle


class SimulatedCard:
    """A card with these properties, unpartitioned and healthy."""

    def __init__(self, facts: CardFacts, *, remaps_rows: bool) -> None:
        remap = False if remaps_rows else None
        self._healthy = Readings(
            *(0, 0, 0, 0),
            remap_pending=remap,
            remap_failed=remap,
            nvlink_errors=0 if facts.nvlinks else None,
            sram_uncorrected_volatile=0 if remaps_rows else None,
            sram_threshold_exceeded=remap,
        )
        self.facts = facts
        self.readings = self._healthy
        self.users: set[str] = set()
        self._lost = self._needs_reset = self.refuses_events = False

    def surveyed(self, *, driver: bool) -> CardFacts:
        """What a survey shows: without a driver, or off the bus, only what the machine knows of the slot."""
        if driver and not self._lost:
            down = self.readings.nvlinks_down
            links = (end for link, end in enumerate(self.facts.nvlinks) if link not in down)
            return self.facts._replace(nvlinks=tuple(links))
        address, vendor, device, pci_class = self.facts[:4]
        return CardFacts(
            address,
            vendor,
            device,
            pci_class,
            numa_node=self.facts.numa_node,
            pci_path=self.facts.pci_path,
            socket=self.facts.socket,
        )

    def must_answer(self) -> Self:
        """The card itself, if it answers; else CardLostError."""
        if self._lost:
            raise CardLostError(f"The card at {self.facts.address} does not answer: it has fallen off the bus.")
        return self

    def use(self, uuid: str) -> None:
        """Let a process use the card, or an instance; ValueError where it has no such instance."""
        if uuid != WHOLE_CARD and uuid not in {instance.uuid for instance in self.facts.instances}:
            raise ValueError(f"The card at {self.facts.address} has no instance {uuid}.")
        self.users.add(uuid)

    def set_mig(self, *, enabled: bool) -> bool:
        """See `NodeHardware.set_mig`."""
        if self.facts.mig_enabled is None:
            raise UnsupportedError(f"{self.facts.product} at {self.facts.address} has no MIG.")
        if self.facts.mig_enabled == enabled:
            self.facts = self.facts._replace(mig_pending=False)
            return True
        if self.users or self.facts.instances:
            raise BusyError(f"The card at {self.facts.address} is in use, or partitioned: its MIG mode cannot change.")
        if self._needs_reset:
            self.facts = self.facts._replace(mig_pending=True)
            return False
        self.facts = self.facts._replace(mig_enabled=enabled)
        return True

    def create_instance(self, name: str, start: int) -> Instance:
        """See `NodeHardware.create_instance`."""
        uuid = uuid_of(f"{self.facts.uuid}/{name}/{start}", "MIG")
        self.facts, instance = with_instance(self.facts, name, start, uuid)
        return instance

    def destroy_instance(self, uuid: str) -> None:
        """See `NodeHardware.destroy_instance`."""
        if uuid in self.users:
            raise BusyError(f"The instance {uuid} of {self.facts.address} is in use.")
        left = tuple(instance for instance in self.facts.instances if instance.uuid != uuid)
        self.facts = with_instances(self.facts, left)

    def apply_fault(self, fault: InjectedFault) -> None:
        """Apply a fault of this card; InjectedFaultError where the card cannot have it."""
        if fault.xid is not None:
            self._apply_xid(fault.xid)
        elif fault.name == OFF_BUS:
            self._lost = True
        elif fault.name == RESET_NEEDED:
            self._needs_reset = True
        elif fault.name == EVENTS_REFUSED:
            self.refuses_events = True
        elif fault.name == RECOVER:
            self.reset()
        else:
            self.readings = EFFECTS[fault.name](self.readings)

    def reset(self) -> None:
        """Be healthy again: a pending MIG mode comes into effect, and aggregate counters stay."""
        self._lost = self._needs_reset = self.refuses_events = False
        self.readings = self._healthy._replace(
            ecc_corrected_aggregate=self.readings.ecc_corrected_aggregate,
            ecc_uncorrected_aggregate=self.readings.ecc_uncorrected_aggregate,
        )
        if self.facts.mig_pending:
            self.facts = self.facts._replace(mig_enabled=not self.facts.mig_enabled, mig_pending=False, instances=())

    def _apply_xid(self, number: int) -> None:
        self._lost = self._lost or number == XID_FALLEN_OFF
        effect = XID_EFFECTS.get(number)
        if effect is not None:
            with suppress(InjectedFaultError):  # The driver may report what this card has no readings of.
                self.readings = effect(self.readings)


def with_instance(card: CardFacts, name: str, start: int, uuid: str) -> tuple[CardFacts, Instance]:
    """The card with a further instance of a profile at a place, by the rules of real cards.

    Raises:
        UnsupportedError: MIG is off, or the card has no such profile, or not at that place.
        BusyError: another instance is in the way.
    """
    if not card.mig_enabled:
        raise UnsupportedError(f"MIG is off on {card.address}; turn it on before the card is partitioned.")
    profile = find_profile(card.profiles, name)
    if profile is None:
        names = ", ".join(each.name for each in card.profiles) or "none"
        raise UnsupportedError(f"{card.product} at {card.address} has no MIG profile {name}; it has {names}.")
    if start not in profile.starts:
        raise UnsupportedError(f"No {name} may begin at {start}; it may at {profile.starts}.")
    reason = obstacle(card.profiles, card.instances, profile, start)
    if reason is not None:
        raise BusyError(f"No {name} can be created at {start} on {card.address}: {reason}.")
    instance = Instance(uuid, name, start, profile.size, gpu_instance=start)
    return with_instances(card, (*card.instances, instance)), instance


def with_instances(card: CardFacts, instances: tuple[Instance, ...]) -> CardFacts:
    """The card with these instances, in order of their places."""
    return card._replace(instances=tuple(sorted(instances, key=lambda instance: instance.start)))
