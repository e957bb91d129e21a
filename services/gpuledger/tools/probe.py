"""Reads this machine's cards once, as an agent would read them, for `gpuledger agent probe`.

It only reads, and may run beside an agent; it must never need a ledger or a kubelet.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpuledger.agent.hardware.api import CardFacts, NodeHardware, Readings
from gpuledger.agent.hardware.errors import CardLostError, DriverMissingError, HardwareError
from gpuledger.agent.hardware.factory import open_hardware
from gpuledger.agent.health.severity import ErrorClasses, Severity, parse_classes
from gpuledger.agent.health.symptoms import symptoms_of
from gpuledger.tools.errors import ToolError

WELL: Final = "ok"
UNKNOWN: Final = "unknown"


class Probe(NamedTuple):
    """The machine's driver and its cards, each as a document; without a driver they have only what the bus shows."""

    cards: list[dict[str, Any]]
    driver_version: str | None
    cuda_version: str | None
    driver_missing: bool


def probe(hardware_text: str, classes_text: str) -> Probe:
    """Survey the cards and read their health; the texts are those of the agent's settings.

    Raises:
        SettingsError: a setting is wrong.
        ToolError: the cards cannot be surveyed.
    """
    classes = parse_classes(classes_text)
    with closing(open_hardware(hardware_text, "probe")) as hardware:
        try:
            survey = hardware.survey()
            cards = [_card(hardware, card, classes) for card in survey.cards]
        except HardwareError as error:
            raise ToolError(f"The cards cannot be surveyed: {error}", "Look into the kernel's log for NVRM") from error
    return Probe(cards, survey.driver_version, survey.cuda_version, survey.driver_missing)


def record_machine(hardware_text: str, path: Path, *, moments: int, pause: Callable[[], None], anonymous: bool) -> int:
    """Record the machine in a file, and return the number of its cards; `pause` is called between two moments.

    Raises:
        SettingsError: a setting is wrong.
        ToolError: the machine cannot be recorded, or the file cannot be written.
    """
    from gpuledger.agent.hardware.recording import record, write_recording  # noqa: PLC0415 - only recordings need it

    with closing(open_hardware(hardware_text, "probe")) as hardware:
        try:
            found = record(hardware, moments=moments, pause=pause, anonymous=anonymous)
            path.write_bytes(write_recording(found))
        except (HardwareError, ValueError) as error:
            raise ToolError(f"The machine cannot be recorded: {error}") from error
        except OSError as error:
            raise ToolError(f"{path} cannot be written: {error.strerror}", "Name another file") from error
    return len(found.survey.cards)


def _card(hardware: NodeHardware, card: CardFacts, classes: ErrorClasses) -> dict[str, Any]:
    return {
        "address": card.address,
        "uuid": card.uuid,
        "product": card.product or f"{card.pci_vendor}:{card.pci_device}",
        "memory_mib": card.memory_mib,
        "mig": _mig(card),
        "instances": len(card.instances),
        "numa": card.numa_node,
        "nvlinks": len(card.nvlinks),
        "health": ", ".join(_health(hardware, card, classes)) or WELL,
        "serial": card.serial,
        "compute": None if card.compute is None else ".".join(map(str, card.compute)),
        "profiles": ",".join(profile.name for profile in card.profiles) or None,
        "pci_path": ",".join(card.pci_path) or None,
    }


def _mig(card: CardFacts) -> str | None:
    if card.mig_enabled is None:
        return None
    return f"{'on' if card.mig_enabled else 'off'}{' (changes with a reset)' if card.mig_pending else ''}"


def _health(hardware: NodeHardware, card: CardFacts, classes: ErrorClasses) -> Iterator[str]:
    try:
        readings: Readings | None = hardware.readings(card.address)
    except CardLostError:
        readings = None
    except DriverMissingError:
        yield UNKNOWN
        return
    for symptom in symptoms_of(readings, classes):
        if symptom.severity is not Severity.IGNORE:
            yield f"{symptom.kind} ({symptom.severity.value})"
