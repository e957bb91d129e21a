"""`gpuledger agent probe`: shows this machine's cards as an agent would see them, without ledger, kubelet or agent.

It only reads, and may run beside an agent.
"""

from pathlib import Path
from time import sleep
from typing import Annotated, Final

import typer

from gpuledger.cli.errors import CliError
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.tools.probe import Probe, probe, record_machine

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
        CliError: no driver answers.
        ToolError: the cards cannot be surveyed.
    """
    found = probe(hardware_text, classes_text)
    render(found.cards, VIEW, output, headers=headers)
    _conclude(found)


def write_probe(hardware_text: str, path: Path, *, moments: int, anonymous: bool) -> None:
    """Record the machine in a file.

    Raises:
        ToolError: the machine cannot be recorded, or the file cannot be written.
    """
    count = record_machine(hardware_text, path, moments=moments, pause=lambda: sleep(MOMENT_S), anonymous=anonymous)
    message(f"Recorded {_cards(count)} at {moments} {'moment' if moments == 1 else 'moments'} in {path}.")


def _conclude(found: Probe) -> None:
    count = _cards(len(found.cards))
    if found.driver_missing and not found.cards:
        raise CliError("No card of NVIDIA's is on the PCI bus", "Run this on a machine with GPUs, or give --hardware")
    if found.driver_missing:
        raise CliError(
            f"DriverMissing: no driver answers for {count} on the PCI bus",
            "Install the NVIDIA driver, and mount libnvidia-ml.so.1 where this runs in a container",
        )
    message(f"{count}; driver {found.driver_version}, CUDA {found.cuda_version}.")


def _cards(count: int) -> str:
    return "1 card" if count == 1 else f"{count} cards"
