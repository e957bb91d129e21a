"""The seam between the agent and a node's cards: what the agent needs of NVML, and nothing more.

Three implementations pass one suite of contract tests: the real one (`nvml`), a simulated one (`simulated`) and the
recording of a machine (`recorded`). Calls block, so that they are made through `gpuledger.agent.hardware.calls` alone.
A card is named by its PCI address (`0000:17:00.0`, lower case), which it keeps when it stops answering.
"""

from typing import NamedTuple, Protocol

from gpuledger.domain.mig.geometry import Instance, Profile

WHOLE_CARD = ""
"""Names a card itself where an instance of it may stand."""


class CardFacts(NamedTuple):
    """What is known of a card; what nobody can tell is None. PCI ids are four lower-case hexadecimal digits.

    `mig_enabled` None: the card knows no MIG. `mig_pending` says that the mode changes with the card's next reset.
    `profiles` are what it can be divided by, and `instances` how it is divided now. `pci_path` are the addresses of the
    bridges between processor and card, beginning at the processor; `nvlinks` the PCI address of what each active link
    ends at.
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


class Survey(NamedTuple):
    """All cards of a node, by address, and the driver that told; without a driver only what the PCI bus shows."""

    cards: tuple[CardFacts, ...]
    driver_version: str | None = None
    cuda_version: str | None = None
    driver_missing: bool = False


class Readings(NamedTuple):
    """What a card says of its own health at a moment; what it does not tell is None or empty.

    ECC errors are counted since the driver was loaded (volatile) and over the card's life (aggregate). `throttled` are
    the reasons for which its clocks are held back, `nvlink_errors` are summed over its links since the driver was
    loaded, `recovery` is what the driver says that it needs (`None`: nothing).
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


class Xid(NamedTuple):
    """An error that the driver reported of a card: its number in NVIDIA's XID catalogue."""

    address: str
    number: int


class NodeHardware(Protocol):
    """A node's cards. Every call but `wait_xid` is over within some seconds where the driver works."""

    @property
    def kind(self) -> str:
        """What this is: `nvml`, `simulated` or `recorded`."""
        ...

    def survey(self) -> Survey:
        """Look at every card. A card that does not answer stands there with what the PCI bus shows of it.

        Raises:
            HardwareError: nothing can be seen at all. A driver that is missing is told in the survey, and is none.
        """
        ...

    def readings(self, address: str) -> Readings:
        """What a card says of its health.

        Raises:
            CardLostError: it does not answer, or is not there.
            DriverMissingError: there is no driver to ask.
        """
        ...

    def wait_xid(self, timeout_s: float) -> Xid | None:
        """The next error of any card, or None where none came in time; what came between two calls is not lost.

        Raises:
            HardwareError: errors cannot be waited for at the moment.
        """
        ...

    def users(self, address: str) -> frozenset[str]:
        """The UUIDs of the card's instances that processes use at the moment; `WHOLE_CARD` for the card itself.

        Raises:
            HardwareError: nobody can tell.
        """
        ...

    def set_mig(self, address: str, *, enabled: bool) -> bool:
        """Turn MIG on or off; returns whether that is in force, or else waits for a reset of the card.

        Raises:
            BusyError: something uses the card.
            RefusedError: the card knows no MIG.
            CardLostError: it does not answer.
        """
        ...

    def create_instance(self, address: str, profile: str, start: int) -> Instance:
        """Divide off an instance of a profile, with the whole of its compute, at a place that the profile may have.

        Raises:
            BusyError: the place is taken.
            RefusedError: the card has no such profile, or not at that place.
            CardLostError: it does not answer.
        """
        ...

    def destroy_instance(self, address: str, uuid: str) -> None:
        """Take an instance back; one that is not there is no error.

        Raises:
            BusyError: something uses it.
            CardLostError: the card does not answer.
        """
        ...

    def close(self) -> None:
        """Let go of the driver; a call that waits ends soon."""
        ...
