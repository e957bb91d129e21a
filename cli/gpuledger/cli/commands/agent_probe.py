"""`gpuledger agent probe`: shows this machine's cards as an agent would see them, without ledger, kubelet or agent.

It only reads, and may run beside an agent.
"""

from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Annotated, Any, Final

import typer

from gpuledger.agent.hardware.api import CardFacts, NodeHardware, Readings, Survey
from gpuledger.agent.hardware.errors import CardLostError, DriverMissingError, HardwareError
from gpuledger.agent.hardware.factory import open_hardware
from gpuledger.agent.health.severity import ErrorClasses, Severity, parse_classes
from gpuledger.agent.health.symptoms import symptoms_of
from gpuledger.cli.errors import CliError
from gpuledger.cli.render import Column, Output, View, message, render

WELL: Final = "ok"
UNKNOWN: Final = "unknown"
MOMENT_S: Final = 5.0
"""The pause between two moments of a recording, as long as an agent's between two polls."""

VIEW: Final = View(
    "card",
    (
        Column("address"),
        Column("uuid"),
        Column("product"),
        Column("memory-mib", right=True),
        Column("mig"),
        Column("instances", right=True),
        Column("numa", right=True),
        Column("nvlinks", right=True),
        Column("health"),
        Column("serial", wide=True),
        Column("compute", wide=True),
        Column("profiles", wide=True),
        Column("pci-path", wide=True),
    ),
    "address",
)

Moments = Annotated[int, typer.Option("--moments", min=1, metavar="N", help="How often to read the cards' health.")]
Record = Annotated[Path | None, typer.Option("--record", metavar="FILE", help="Record this machine in a file.")]
KeepIds = Annotated[
    bool, typer.Option("--keep-ids", help="Leave serial numbers and UUIDs in the recording as they are.")
]


def show_probe(hardware_text: str, classes_text: str, output: Output, *, headers: bool) -> None:
    """Show every card, and the driver.

    Raises:
        CliError: no driver answers, or the cards cannot be surveyed.
    """
    classes, hardware = parse_classes(classes_text), open_hardware(hardware_text, "probe")
    try:
        survey = hardware.survey()
        rows = [_row(hardware, card, classes) for card in survey.cards]
    except HardwareError as error:
        raise CliError(f"The cards cannot be surveyed: {error}", "Look into the kernel's log for NVRM") from error
    finally:
        hardware.close()
    render(rows, VIEW, output, headers=headers)
    _conclude(survey)


def write_probe(hardware_text: str, path: Path, *, moments: int, anonymous: bool) -> None:
    """Record the machine.

    Raises:
        CliError: the machine cannot be recorded, or the file cannot be written.
    """
    from gpuledger.agent.hardware.recording import record, write_recording  # noqa: PLC0415 - only recordings need it

    hardware = open_hardware(hardware_text, "probe")
    try:
        found = record(hardware, moments=moments, pause=lambda: sleep(MOMENT_S), anonymous=anonymous)
        path.write_bytes(write_recording(found))
    except (HardwareError, ValueError) as error:
        raise CliError(f"The machine cannot be recorded: {error}") from error
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}", "Name another file") from error
    finally:
        hardware.close()
    message(f"Recorded {_cards(found.survey)} at {moments} {'moment' if moments == 1 else 'moments'} in {path}.")


def _row(hardware: NodeHardware, card: CardFacts, classes: ErrorClasses) -> dict[str, Any]:
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


def _conclude(survey: Survey) -> None:
    if survey.driver_missing and not survey.cards:
        raise CliError("No card of NVIDIA's is on the PCI bus", "Run this on a machine with GPUs, or give --hardware")
    if survey.driver_missing:
        raise CliError(
            f"DriverMissing: no driver answers for {_cards(survey)} on the PCI bus",
            "Install the NVIDIA driver, and mount libnvidia-ml.so.1 where this runs in a container",
        )
    message(f"{_cards(survey)}; driver {survey.driver_version}, CUDA {survey.cuda_version}.")


def _cards(survey: Survey) -> str:
    return "1 card" if len(survey.cards) == 1 else f"{len(survey.cards)} cards"
