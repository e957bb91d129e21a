"""The interface between the agent and a node's cards: what the agent needs of NVML, and nothing more. Pure.

Three implementations pass one contract suite: the real cards (`nvml`), simulated ones (`simulated`) and the recording
of a machine (`recorded`). Calls block, so that only `gpuledger.agent.hardware.calls` makes them. A card is named by its
PCI address (`0000:17:00.0`, lower case), which it keeps when it stops answering.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from gpuledger.domain.mig.geometry import Instance, Profile

WHOLE_CARD = ""
"""Stands for a card itself in place of an instance's UUID."""


class CardFacts(NamedTuple):
    """The properties of a card; None where unknown. PCI ids are four lower-case hexadecimal digits.

    `mig_enabled` is None on a card without MIG; `mig_pending` means that the mode changes with the card's next reset.
    `profiles` are the MIG profiles that the card supports, and `instances` its present partitions. `pci_path` has the
    addresses of the bridges from the processor to the card, `nvlinks` the PCI address of the peer of each active link.
    `minor` is the number of its device file, `module_id` its place on its board, `socket` the processor beside it.
    """

    address: str
    pci_vendor: str
    pci_device: str
    pci_class: str | None = None
    uuid: str | None = None
    serial: str | None = None
    product: str | None = None
    memory_mib: int | None = None
    compute: tuple[int, int] | None = None
    numa_node: int | None = None
    pci_path: tuple[str, ...] = ()
    nvlinks: tuple[str, ...] = ()
    mig_enabled: bool | None = None
    mig_pending: bool = False
    profiles: tuple[Profile, ...] = ()
    instances: tuple[Instance, ...] = ()
    minor: int | None = None
    module_id: int | None = None
    socket: int | None = None


class NicFacts(NamedTuple):
    """A network card with RDMA: `name` is its RDMA device's, `active` whether a port is; the rest as with cards.

    `functions` are the PCI addresses of its virtual functions, in the kernel's order.
    """

    name: str
    address: str
    active: bool
    numa_node: int | None = None
    socket: int | None = None
    pci_path: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


class Survey(NamedTuple):
    """All cards of a node, by address, and the driver; without a driver the cards have only what the PCI bus shows."""

    cards: tuple[CardFacts, ...]
    driver_version: str | None = None
    cuda_version: str | None = None
    driver_missing: bool = False


class Unread(NamedTuple):
    """A reading, by its name in `Readings`, that a poll failed to get, and the driver's error."""

    reading: str
    message: str


class Readings(NamedTuple):
    """A card's health counters and flags; None or empty where the card does not report them.

    `unread` are those that the card has and the driver failed to give: they say neither that a card is well nor that
    it is not.

    ECC errors are counted since the driver was loaded (volatile) and over the card's life (aggregate); they include
    those in SRAM, of which more than NVIDIA tolerates exceed a threshold for good. `throttled` has the reasons that
    hold the card's clocks back, `nvlink_errors` the sum over its links since the driver was loaded, `recovery` the
    recovery action that the driver requests (None: none).
    """

    ecc_corrected_volatile: int | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    throttled: frozenset[str] = frozenset()
    nvlink_errors: int | None = None
    nvlinks_down: tuple[int, ...] = ()
    recovery: str | None = None
    sram_uncorrected_volatile: int | None = None
    sram_threshold_exceeded: bool | None = None
    unread: tuple[Unread, ...] = ()


class Xid(NamedTuple):
    """An error of a card that the driver reported, by its number in NVIDIA's XID catalogue."""

    address: str
    number: int


class Unregistered(NamedTuple):
    """Why a card's errors do not reach the agent: its driver does not support that, or refused it for now."""

    reason: Literal["NotSupported", "Refused"]
    message: str


class NodeHardware(Protocol):
    """A node's cards. With a working driver, every call but `wait_xid` returns within seconds."""

    @property
    def kind(self) -> str:
        """`nvml`, `simulated` or `recorded`."""
        ...

    def survey(self) -> Survey:
        """Survey every card; one that does not answer has only what the PCI bus shows.

        Raises:
            HardwareError: no card can be surveyed. A missing driver is part of the survey instead.
        """
        ...

    def readings(self, address: str) -> Readings:
        """The health of a card; a reading that fails alone is `unread`.

        Raises:
            CardLostError: it does not answer, or is not there.
            DriverMissingError: there is no driver.
            HardwareError: every reading fails.
        """
        ...

    def wait_xid(self, timeout_s: float) -> Xid | None:
        """The next error of any card, or None where none came in time; errors between two calls are not lost.

        Raises:
            HardwareError: it is impossible to wait for errors at present.
        """
        ...

    def unregistered(self) -> Mapping[str, Unregistered]:
        """The cards whose errors `wait_xid` cannot wait for at present, by address; never blocks, from any thread."""
        ...

    def users(self, address: str) -> frozenset[str]:
        """The UUIDs of the card's instances that processes use at present; `WHOLE_CARD` for the card itself.

        Raises:
            HardwareError: that is unknown.
        """
        ...

    def set_mig(self, address: str, *, enabled: bool) -> bool:
        """Turn MIG on or off; returns whether that is in effect, or else pending until the card is reset.

        Raises:
            BusyError: something uses the card.
            UnsupportedError: the card has no MIG.
            CardLostError: it does not answer.
        """
        ...

    def create_instance(self, address: str, profile: str, start: int) -> Instance:
        """Create an instance of a profile, with all of its compute, at a place that the profile allows.

        Raises:
            BusyError: the place is taken.
            UnsupportedError: the card has no such profile, or not at that place.
            CardLostError: it does not answer.
        """
        ...

    def destroy_instance(self, address: str, uuid: str) -> None:
        """Destroy an instance, if it is there.

        Raises:
            BusyError: something uses it.
            CardLostError: the card does not answer.
        """
        ...

    def close(self) -> None:
        """Release the driver; a call that waits ends soon."""
        ...
