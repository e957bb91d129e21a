"""`gpuledger what-if rollout`: what updating a pool's nodes would disturb, and how long it would take."""

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.config import Pool, bare
from gpuledger.cli.commands.config_preview import Files, read_manifests
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import DataDir
from gpuledger.cli.render.page import AnswerOutput, Document, Output, show_answer
from gpuledger.cli.render.what_if_rollout_page import what_if_rollout_page
from gpuledger.cli.run import run
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.machineconfig.manifests import Manifests
from gpuledger.tools.whatif.rollout import Assumed, what_if_rollout

MaxUnavailable = Annotated[
    str | None,
    typer.Option(
        "--max-unavailable", metavar="N|P%", help="How many nodes at a time.", show_default="that of the pool"
    ),
]
PreferIdle = Annotated[
    bool, typer.Option("--prefer-idle", help="Assume that the pool prefers idle nodes, whatever it says.")
]

_AMOUNT: Final = re.compile(r"[1-9][0-9]{0,5}|[1-9][0-9]?%|100%").fullmatch


def rollout(
    pool: Pool,
    file: Files = None,
    max_unavailable: MaxUnavailable = None,
    prefer_idle: PreferIdle = False,
    output: Output = AnswerOutput.TABLE,
    data_dir: DataDir = None,
) -> None:
    """Estimate how long a rollout of a MachineConfigPool takes, and how many GPU-hours it disturbs.

    Orders by zone and with idle nodes first are compared. Lengths come from the ledger, or are assumed, and it says so.
    """
    if max_unavailable is not None and not _AMOUNT(max_unavailable):
        what = f"--max-unavailable is a number from 1 or a percentage such as 10%, and not {max_unavailable!r}"
        raise CliError(what, "Give another one", ExitCode.USAGE)
    assumed = Assumed(max_unavailable, prefer_idle)
    show_answer(run(_rollout(bare(pool), read_manifests(file), assumed, data_dir)), output, what_if_rollout_page)


async def _rollout(pool: str, manifests: Manifests, assumed: Assumed, data_dir: Path | None) -> Document:
    async with open_backend(data_dir, "what-if", asks=True) as backend:
        return await what_if_rollout(backend, pool, manifests, assumed, system_clock())
