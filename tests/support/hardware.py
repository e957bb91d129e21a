"""Machines for tests of hardware: equal cards in each implementation, and ways to act on them."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pynvml

from gpuledger.agent.hardware.api import WHOLE_CARD, NodeHardware
from gpuledger.agent.hardware.nvml import NvmlHardware
from gpuledger.agent.hardware.recorded import RecordedHardware
from gpuledger.agent.hardware.recording import read_recording, record, write_recording
from gpuledger.agent.hardware.simulated import SimulatedHardware
from support.fake_nvml import FakeNvml
from support.fake_nvml_cards import FakeCard

FIRST, SECOND, THIRD = "0000:17:00.0", "0000:65:00.0", "0000:ca:00.0"
ROOTS = {FIRST: "pci0000:16/0000:16:01.0", SECOND: "pci0000:64/0000:64:01.0", THIRD: "pci0000:c9/0000:c9:01.0"}


class Machine(NamedTuple):
    """Hardware under test, and what can be done to it; None: that cannot be."""

    hardware: NodeHardware
    use: Callable[[str, str], None] | None = None
    lose: Callable[[str], None] | None = None
    xid: Callable[[str, int], None] | None = None
    unload: Callable[[], None] | None = None


class Bench(NamedTuple):
    """A fake driver, the sysfs beside it, and the hardware that reads them."""

    nvml: FakeNvml
    sysfs: Path
    hardware: NvmlHardware

    def card(self, address: str) -> FakeCard:
        """The card that the fake driver has at an address."""
        return next(card for card in self.nvml.cards if card.bus_id.lower().endswith(address))


def h100(address: str, **facts: object) -> FakeCard:
    """An H100 that is the fake driver's."""
    number = address.replace(":", "").replace(".", "")
    created = FakeCard(f"0000{address}".upper(), f"GPU-{number[4:6]}000000-0000-4000-8000-000000000000")
    for name, value in facts.items():
        setattr(created, name, value)
    return created


def put_on_bus(sysfs: Path, address: str, *, driver: str | None = "nvidia", **files: str) -> Path:
    """A card in a sysfs; `files` replace its own attributes."""
    folder = sysfs / "devices" / ROOTS.get(address, "pci0000:00") / address
    folder.mkdir(parents=True)
    attributes = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "numa_node": "0"} | files
    for name, text in attributes.items():
        (folder / name).write_text(f"{text}\n")
    if driver is not None:
        (sysfs / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(sysfs / "bus/pci/drivers" / driver)
    devices = sysfs / "bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / address).symlink_to(folder)
    return folder


def bench(sysfs: Path, *cards: FakeCard) -> Bench:
    """Cards in a fake driver and in a sysfs; without any, two H100 that NVLinks join."""
    there = cards or (h100(FIRST, links=[f"0000{SECOND}"] * 2), h100(SECOND, links=[f"0000{FIRST}"] * 2))
    for card in there:
        put_on_bus(sysfs, card.bus_id[4:].lower())
    nvml = FakeNvml(*there)
    return Bench(nvml, sysfs, NvmlHardware(nvml.load, sysfs=sysfs))


def nvml_machine(sysfs: Path) -> Machine:
    """The real implementation, over a fake driver."""
    created = bench(sysfs)

    def use(address: str, uuid: str) -> None:
        card = created.card(address)
        numbers = [each.gpu_instance.id for each in card.mig_devices().values() if each.uuid == uuid]
        card.processes.append((4242, numbers[0] if uuid != WHOLE_CARD else 0xFFFFFFFF, "compute"))

    def lose(address: str) -> None:
        created.card(address).error = pynvml.NVML_ERROR_GPU_IS_LOST

    def unload() -> None:
        created.nvml.init_error = created.nvml.errors["nvmlDeviceGetCount"] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
        created.nvml.errors["nvmlDeviceGetHandleByPciBusId"] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED

    return Machine(
        created.hardware, use, lose, lambda address, number: created.nvml.xid(created.card(address), number), unload
    )


def simulated_machine(_: Path) -> Machine:
    """The simulated implementation."""
    created = SimulatedHardware("2xH100")
    return Machine(
        created,
        created.use,
        lambda address: _ignore_text(created.inject(f"off-bus@{address}")),
        lambda address, number: _ignore_text(created.inject(f"xid:{number}@{address}")),
        lambda: _ignore_text(created.inject("driver-missing")),
    )


def recorded_machine(sysfs: Path) -> Machine:
    """The recording of the fake driver's cards, as its document holds them."""
    document = write_recording(record(bench(sysfs).hardware, moments=2, anonymous=True))
    return Machine(RecordedHardware(read_recording(document)))


def driver_is_here() -> bool:
    """Whether this machine has cards that NVML shows."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    pynvml.nvmlShutdown()
    return True


def _ignore_text(_: str) -> None:
    """The text of `inject` is for people."""
