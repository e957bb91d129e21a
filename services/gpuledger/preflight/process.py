"""The process of a check: runs it in its time, reports what came of it, and ends with the code that says so."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from gpuledger.api.preflight import CheckName, Detail, ExitCode
from gpuledger.preflight.allreduce import nccl_allreduce_check
from gpuledger.preflight.bandwidth import bandwidth_check
from gpuledger.preflight.conclusion import CheckConclusion, exit_code
from gpuledger.preflight.dcgm import dcgm_diag_check
from gpuledger.preflight.errors import (
    ConfigurationError,
    NotReportedError,
    NotRunError,
    PreflightError,
)
from gpuledger.preflight.instance_type import node_instance_type
from gpuledger.preflight.loopback import nccl_loopback_check
from gpuledger.preflight.machine import CheckMachine
from gpuledger.preflight.programs import run_program
from gpuledger.preflight.report import report_of
from gpuledger.preflight.reporting import send_report
from gpuledger.preflight.settings import (
    CheckSettings,
    read_check_settings,
    read_not_run,
    read_pod,
    read_report,
    read_strategy,
    read_termination_log,
)
from gpuledger.preflight.termination import termination_of, write_result
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.tasks import run_until_stopped
from gpuledger.runtime.telemetry import configure_logging

ENDING_MAX_S: Final = 10.0

RunCheck = Callable[[CheckSettings, CheckMachine], Awaitable[CheckConclusion]]

CHECKS: Final[Mapping[str, RunCheck]] = {
    CheckName.DCGM_DIAG: dcgm_diag_check,
    CheckName.NCCL_LOOPBACK: nccl_loopback_check,
    CheckName.NCCL_ALLREDUCE: nccl_allreduce_check,
    CheckName.BANDWIDTH: bandwidth_check,
}

_log = structlog.get_logger()


def main(arguments: Sequence[str]) -> int:
    """Run the check that the arguments name, until it ends or a signal stops it; returns the exit code."""
    configure_logging()
    if len(arguments) != 1 or arguments[0] not in CHECKS:
        sys.stderr.write(f"Error: name one check of {', '.join(CHECKS)}.\n")
        return ExitCode.CONFIGURATION
    instance_type = partial(node_instance_type, os.environ)
    here = CheckMachine(os.environ, run_program, system_clock, time.monotonic, instance_type=instance_type)
    codes: list[int] = []

    async def work() -> None:
        codes.append(await run_check(arguments[0], here))

    asyncio.run(run_until_stopped(work(), _say, ending_max_s=ENDING_MAX_S))
    return codes[0] if codes else ExitCode.NOT_REPORTED


async def run_check(check: str, here: CheckMachine) -> int:
    """Run a check on its machine, leave its result, and report it; returns the exit code."""
    structlog.contextvars.bind_contextvars(check=check)
    began_s = here.monotonic()
    try:
        concluded = await _concluded(check, here)
    except asyncio.CancelledError:
        stopped = CheckConclusion("not-reported", "The check was stopped before its end.")
        _leave(stopped, here, here.monotonic() - began_s)
        raise
    duration_s = here.monotonic() - began_s
    _log.info("the check ended", outcome=concluded.outcome, codes=concluded.codes, message=concluded.message)
    _leave(concluded, here, duration_s)
    try:
        await _report(check, concluded, here, duration_s)
    except NotReportedError as error:
        return _unreported(concluded, here, duration_s, error)
    return _exit(concluded, here)


async def _concluded(check: str, here: CheckMachine) -> CheckConclusion:
    """What the check found, or why it found nothing."""
    try:
        settings = read_check_settings(here.environ)
        return await CHECKS[check](settings, here)
    except ConfigurationError as error:
        return CheckConclusion("config-error", str(error), details={Detail.ERROR: error.variable})
    except NotRunError as error:
        return CheckConclusion("not-reported", str(error))
    except Exception as error:  # noqa: BLE001 - an error of our own would end with 1, which blames hardware
        _log.exception("the check broke")
        return CheckConclusion("not-reported", f"The check broke, which is its own fault: {error!r}. Its log has more.")


async def _report(check: str, concluded: CheckConclusion, here: CheckMachine, duration_s: float) -> None:
    """Report the result; one of invalid settings as far as these say where."""
    try:
        target, strategy = read_report(here.environ), read_strategy(here.environ)
    except ConfigurationError as error:
        raise NotReportedError(str(error)) from error
    request = report_of(check, concluded, read_pod(here.environ), strategy, duration_s, here.clock())
    await send_report(target, request, monotonic=here.monotonic, sleep=here.sleep)


def _unreported(concluded: CheckConclusion, here: CheckMachine, duration_s: float, error: PreflightError) -> int:
    """The exit code of a result that nobody took: what it says of hardware counts for nothing then."""
    _log.error("the result was not reported", problem=str(error))
    if concluded.is_neutral or concluded.outcome == "gang-timeout":
        return _exit(concluded, here)
    message = f"{error} The check's own result: {concluded.outcome}, {concluded.message}"
    _leave(replace(concluded, outcome="not-reported", message=message), here, duration_s)
    return ExitCode.NOT_REPORTED


def _exit(concluded: CheckConclusion, here: CheckMachine) -> int:
    if concluded.outcome == "config-error":
        return ExitCode.CONFIGURATION
    return exit_code(concluded, read_strategy(here.environ), read_not_run(here.environ))


def _leave(concluded: CheckConclusion, here: CheckMachine, duration_s: float) -> None:
    """Write the result where Kubernetes keeps it; without that it is in the log and the report alone."""
    path = read_termination_log(here.environ)
    try:
        write_result(path, termination_of(concluded, duration_s))
    except OSError as error:
        _log.warning("the result cannot be left for Kubernetes", path=str(path), problem=error.strerror)


def _say(text: str) -> None:
    _log.info(text)
