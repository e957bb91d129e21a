"""What the simulated checks find, how it ends their containers, and what they report of the node. Pure.

A check that fails reports error codes as the real one does. A card that is out of service fails every check.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gpuledger.api.preflight import GANG_CHECKS, MONITOR, NEUTRAL_OUTCOMES, CheckName, Detail, ExitCode, check_container
from gpuledger.domain.preflight.findings import DIAG_ACTIONS, NCCL_ACTIONS, NCCL_FATAL
from gpuledger.domain.preflight.nccl_errors import NcclCode
from gpuledger.events.health import HealthEntity, NodeHealthReported
from gpuledger.events.preflight import PreflightResult
from gpuledger.events.recommended_action import NO_ACTION
from gpuledger.tools.simulation.checks.pods import InjectedCheck
from gpuledger.tools.simulation.names import PodPlace

OTHER_SECONDS: Final = 10.0
SECONDS: Final[Mapping[str, float]] = {
    CheckName.DCGM_DIAG: 30.0,
    CheckName.NCCL_LOOPBACK: 15.0,
    CheckName.NCCL_ALLREDUCE: 20.0,
    CheckName.BANDWIDTH: 10.0,
}
"""How long a check takes on a machine, about."""

FAULT_CODES: Final[Mapping[str, str]] = {CheckName.DCGM_DIAG: "DCGM_MEMORY_FAIL"}
"""What a check of a faulty card fails with; others with `NCCL_SYSTEM_ERROR`."""

GANG_CODE: Final = "GANG_TIMEOUT"


_HARMLESS: Final = (False, NO_ACTION)
_BLAMES: Final[Mapping[str, tuple[bool, str]]] = {
    **{f"DCGM_{family.name}_FAIL": (True, action) for family, action in DIAG_ACTIONS.items()},
    **{code: (code in NCCL_FATAL, action) for code, action in NCCL_ACTIONS.items()},
}


def seconds_of(check: str) -> float:
    """How long a check takes."""
    return SECONDS.get(check, OTHER_SECONDS)


def failure_code(check: InjectedCheck, *, is_faulty: bool) -> str | None:
    """The error code that a check fails with; None where it passes. `is_faulty`: one of the pod's cards is."""
    if check.fails_with is not None or not is_faulty:
        return check.fails_with
    return FAULT_CODES.get(check.name, NcclCode.SYSTEM_ERROR)


def passed(check: InjectedCheck, duration_s: float, gang_wait_s: float | None, share: float) -> PreflightResult:
    """A check has passed; `share` from 0 to 1 says by how much its bandwidth is above the threshold."""
    least = check.threshold_gbps
    bandwidth = None if least is None else round(least * (1.5 + share), 2)
    return PreflightResult(
        outcome="passed",
        duration_s=duration_s,
        gang_wait_s=gang_wait_s,
        bandwidth_gbps=bandwidth,
        threshold_gbps=least,
    )


def failed(check: InjectedCheck, code: str, duration_s: float, gang_wait_s: float | None) -> PreflightResult:
    """A check has failed with an error code."""
    return PreflightResult(
        outcome="failed",
        codes=(code,),
        message=f"The simulated check {check.name} failed with {code}",
        duration_s=duration_s,
        gang_wait_s=gang_wait_s,
        threshold_gbps=check.threshold_gbps,
    )


def gang_timed_out(check: InjectedCheck, waited_s: float) -> PreflightResult:
    """The gang of a check was not complete in time."""
    message = f"The gang was not complete after {waited_s:.0f} s; {check.name} was not carried out"
    return PreflightResult(
        outcome="gang-timeout", codes=(GANG_CODE,), message=message, duration_s=waited_s, gang_wait_s=waited_s
    )


def skipped(check: InjectedCheck, *, cards: int, has_gang: bool) -> PreflightResult | None:
    """The result of a check that does not apply to the pod; None where it does."""
    if check.name == CheckName.NCCL_LOOPBACK and cards == 1:
        return _skipped("A single card has no bus to measure")
    if check.name in GANG_CHECKS and not has_gang:
        return _skipped("The pod belongs to no gang")
    return None


def _skipped(message: str) -> PreflightResult:
    return PreflightResult(outcome="skipped", codes=("SKIPPED",), message=message, duration_s=0)


def exit_code(result: PreflightResult) -> ExitCode:
    """How the container of a check ends."""
    exits = {"passed": ExitCode.PASSED, "skipped": ExitCode.PASSED, "gang-timeout": ExitCode.GANG_TIMEOUT}
    return exits.get(result.outcome, ExitCode.FAILED)


def report_of(check: str, result: PreflightResult, place: PodPlace, cards: Iterable[str]) -> NodeHealthReported:
    """What a check reports of the cards (by UUID) of a pod."""
    neutral = result.outcome in NEUTRAL_OUTCOMES
    devices = () if neutral else tuple(cards)
    fatal, action = max((_blame(code) for code in result.codes), default=_HARMLESS)
    return NodeHealthReported(
        monitor=MONITOR,
        reporter="/".join(place),
        check=check_container(check),
        component="GPU",
        healthy=neutral or result.outcome == "passed",
        fatal=fatal,
        message=result.message,
        action=action,
        codes=result.codes,
        entities=tuple(HealthEntity(type="GPU_UUID", value=uuid) for uuid in devices),
        devices=devices,
        strategy="store-only" if neutral else "execute-remediation",
        metadata=_details(result, place),
    )


def _blame(code: str) -> tuple[bool, str]:
    """Whether an error blames hardware, and the recommended action."""
    return _BLAMES.get(code, _HARMLESS)


def _details(result: PreflightResult, place: PodPlace) -> dict[str, str]:
    numbers = {
        Detail.DURATION_S: result.duration_s,
        Detail.GANG_WAIT_S: result.gang_wait_s,
        Detail.BANDWIDTH: result.bandwidth_gbps,
        Detail.THRESHOLD: result.threshold_gbps,
    }
    return {
        Detail.POD_NAMESPACE: place.namespace,
        Detail.POD_NAME: place.name,
        Detail.OUTCOME: result.outcome,
        **{key: f"{value:g}" for key, value in numbers.items() if value is not None},
    }
