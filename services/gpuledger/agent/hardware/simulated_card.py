"""A simulated card: how it is divided, who uses it, and how it feels. It knows no threads and no other card."""

from contextlib import suppress
from typing import Self

from gpuledger.agent.hardware.api import WHOLE_CARD, CardFacts, Readings
from gpuledger.agent.hardware.errors import BusyError, CardLostError, UnsupportedError
from gpuledger.agent.hardware.simulated_faults import (
    EFFECTS,
    OFF_BUS,
    RECOVER,
    RESET_NEEDED,
    XID_EFFECTS,
    XID_FALLEN_OFF,
    InjectedFault,
    InjectedFaultError,
)
from gpuledger.agent.hardware.simulated_node import named
from gpuledger.domain.mig.geometry import Instance, Profile, find_profile, obstacle


class SimulatedCard:
    """A card that is what these facts say, undivided and well."""

    def __init__(self, facts: CardFacts, *, remaps_rows: bool) -> None:
        remap = False if remaps_rows else None
        self._well = Readings(0, 0, 0, 0, remap, remap, nvlink_errors=0 if facts.nvlinks else None)
        self.facts = facts
        self.readings = self._well
        self.users: set[str] = set()
        self._lost = self._needs_reset = False

    def seen(self, *, driver: bool) -> CardFacts:
        """What can be seen of it: without a driver, or off the bus, only what the machine knows of the slot."""
        if driver and not self._lost:
            down = self.readings.nvlinks_down
            links = (end for link, end in enumerate(self.facts.nvlinks) if link not in down)
            return self.facts._replace(nvlinks=tuple(links))
        address, vendor, device, pci_class = self.facts[:4]
        return CardFacts(
            address, vendor, device, pci_class, numa_node=self.facts.numa_node, pci_path=self.facts.pci_path
        )

    def answering(self) -> Self:
        """The card, if it answers; else CardLostError."""
        if self._lost:
            raise CardLostError(f"The card at {self.facts.address} does not answer: it has fallen off the bus.")
        return self

    def use(self, uuid: str) -> None:
        """Let a process use the card, or an instance; ValueError where it has no such instance."""
        if uuid != WHOLE_CARD and uuid not in {instance.uuid for instance in self.facts.instances}:
            raise ValueError(f"The card at {self.facts.address} has no instance {uuid}.")
        self.users.add(uuid)

    def set_mig(self, *, enabled: bool) -> bool:
        """See `Hardware.set_mig`."""
        if self.facts.mig_enabled is None:
            raise UnsupportedError(f"{self.facts.product} at {self.facts.address} knows no MIG.")
        if self.facts.mig_enabled == enabled:
            self.facts = self.facts._replace(mig_pending=False)
            return True
        self._must_be_free("its MIG mode")
        if self._needs_reset:
            self.facts = self.facts._replace(mig_pending=True)
            return False
        self.facts = self.facts._replace(mig_enabled=enabled)
        return True

    def create_instance(self, name: str, start: int) -> Instance:
        """See `Hardware.create_instance`."""
        profile = self._profile(name, start)
        why = obstacle(self.facts.profiles, self.facts.instances, profile, start)
        if why is not None:
            raise BusyError(f"No {name} can be made at {start} on {self.facts.address}: {why}.")
        instance = Instance(named(f"{self.facts.uuid}/{name}/{start}", "MIG"), name, start, profile.size)
        self._stand((*self.facts.instances, instance))
        return instance

    def destroy_instance(self, uuid: str) -> None:
        """See `Hardware.destroy_instance`."""
        if uuid in self.users:
            raise BusyError(f"The instance {uuid} of {self.facts.address} is in use.")
        self._stand(tuple(instance for instance in self.facts.instances if instance.uuid != uuid))

    def apply_fault(self, fault: InjectedFault) -> None:
        """Have a fault of its own; FaultError where the card cannot have that one."""
        if fault.xid is not None:
            self._befall_xid(fault.xid)
        elif fault.name == OFF_BUS:
            self._lost = True
        elif fault.name == RESET_NEEDED:
            self._needs_reset = True
        elif fault.name == RECOVER:
            self.reset()
        else:
            self.readings = EFFECTS[fault.name](self.readings)

    def reset(self) -> None:
        """Be well again: a mode of MIG that waited comes into force, and what is counted for life stays."""
        self._lost = self._needs_reset = False
        self.readings = self._well._replace(
            ecc_corrected_aggregate=self.readings.ecc_corrected_aggregate,
            ecc_uncorrected_aggregate=self.readings.ecc_uncorrected_aggregate,
        )
        if self.facts.mig_pending:
            self.facts = self.facts._replace(mig_enabled=not self.facts.mig_enabled, mig_pending=False, instances=())

    def _befall_xid(self, number: int) -> None:
        self._lost = self._lost or number == XID_FALLEN_OFF
        effect = XID_EFFECTS.get(number)
        if effect is not None:
            with suppress(InjectedFaultError):  # The driver may report what this card has no readings of.
                self.readings = effect(self.readings)

    def _profile(self, name: str, start: int) -> Profile:
        profile = find_profile(self.facts.profiles, name)
        if not self.facts.mig_enabled:
            raise UnsupportedError(f"MIG is off on {self.facts.address}.")
        if profile is None:
            raise UnsupportedError(f"{self.facts.product} at {self.facts.address} has no MIG profile {name}.")
        if start not in profile.starts:
            raise UnsupportedError(f"No {name} may begin at {start}; it may at {profile.starts}.")
        return profile

    def _must_be_free(self, what: str) -> None:
        if self.users or self.facts.instances:
            raise BusyError(f"The card at {self.facts.address} is in use, or divided: {what} cannot change.")

    def _stand(self, instances: tuple[Instance, ...]) -> None:
        ordered = sorted(instances, key=lambda instance: instance.start)
        self.facts = self.facts._replace(instances=tuple(ordered))
