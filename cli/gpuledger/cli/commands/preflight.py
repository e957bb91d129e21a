"""`gpuledger preflight`: runs a check of a pod before its workload starts, and shows what came of checks."""

import os
import sys
from typing import Annotated, NoReturn

import typer

from gpuledger.cli.commands import preflight_results

app = typer.Typer(help="Preflight checks of pods: run one, and see what came of them.", no_args_is_help=True)

Check = Annotated[
    str,
    typer.Argument(metavar="CHECK", help="dcgm-diag, nccl-loopback, nccl-allreduce or bandwidth.", show_default=False),
]


@app.callback()
def preflight() -> None:
    """Preflight checks of pods."""


app.command("list")(preflight_results.list_)
app.command()(preflight_results.show)
app.command()(preflight_results.gangs)


@app.command("run")
def run_check(check: Check) -> None:
    """Run a check on the GPUs of this container, as an init container of a pod does.

    Settings come from the environment; docs/preflight.md describes them. Exits with 0 where the check passed or does
    not apply, 1 where it failed, 2 for an invalid setting, 3 where the pod's gang was not complete in time, and 4 where
    it could not be carried out, or its result not be reported.
    """
    _become_check(check)


def _become_check(check: str) -> NoReturn:
    """Replace this process, which holds the whole command line in memory, with the check's own."""
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "gpuledger.preflight", check])  # noqa: S606 - our own program
