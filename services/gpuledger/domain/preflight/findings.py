"""What the outcomes of checks mean: the findings to report, each with its action. Pure.

The tables from errors to actions are those of NVSentinel's design. What they leave open is decided here:

- Tests of DCGM's sections Deployment and others than the four that the design names fail with CONTACT_SUPPORT; where
  DCGM says that a reset mends it (its severity 6), a test of the software fails with COMPONENT_RESET.
- A persistence mode that is off is a warning: it blames no hardware.
- A bus bandwidth below the threshold is fatal, for support; wrong values are too, and want the extended diagnosis.
- What was not tested is neither good nor bad: nothing was run, all tests of hardware were skipped, the output is cut
  before anything failed, or a single card has no bus.
- The codes are DCGM's own names where it numbers its errors, else `DCGM_<family>_<FAIL or WARN>`, and NVSentinel's
  names for NCCL's.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.domain.preflight.dcgm_errors import FALLEN_OFF_BUS, PERSISTENCE_MODE, SEVERITY_RESET, error_name
from gpuledger.domain.preflight.diagnosis import DiagError, DiagFamily, Diagnosis, DiagResult, DiagStatus, ran
from gpuledger.domain.preflight.errors import CardLostError
from gpuledger.domain.preflight.nccl_errors import NcclCode
from gpuledger.domain.preflight.nccl_tests import NcclRun
from gpuledger.events.recommended_action import (
    CONTACT_SUPPORT,
    EXTENDED_DIAGNOSTICS,
    NO_ACTION,
    RESET,
    RESTART_MACHINE,
)


class Verdict(StrEnum):
    """What a check's outcome says about the hardware."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_JUDGED = "not-judged"
    """It was not tested; the message says why."""


class Finding(NamedTuple):
    """What to report of a card, by its UUID, or of the node. A fatal one makes the hardware unusable."""

    code: str
    fatal: bool
    action: str
    message: str
    gpu: str | None = None


class Judgement(NamedTuple):
    """A verdict, with the findings that lead to it; warnings stand beside any verdict."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    message: str


DIAG_ACTIONS: Final[Mapping[DiagFamily, str]] = {
    DiagFamily.MEMORY: CONTACT_SUPPORT,
    DiagFamily.PCIE: CONTACT_SUPPORT,
    DiagFamily.NVLINK: CONTACT_SUPPORT,
    DiagFamily.STRESS: EXTENDED_DIAGNOSTICS,
    DiagFamily.SOFTWARE: CONTACT_SUPPORT,
    DiagFamily.OTHER: CONTACT_SUPPORT,
}
"""What mends a failed test; the first four are NVSentinel's design."""

NCCL_ACTIONS: Final[Mapping[NcclCode, str]] = {
    NcclCode.SYSTEM_ERROR: CONTACT_SUPPORT,
    NcclCode.INTERNAL_ERROR: EXTENDED_DIAGNOSTICS,
    NcclCode.INVALID_USAGE: NO_ACTION,
    NcclCode.TIMEOUT: NO_ACTION,
    NcclCode.REMOTE_ERROR: CONTACT_SUPPORT,
    NcclCode.BANDWIDTH: CONTACT_SUPPORT,
    NcclCode.WRONG_RESULT: EXTENDED_DIAGNOSTICS,
    NcclCode.UNKNOWN: NO_ACTION,
}
"""What mends an error of NCCL; the first five are NVSentinel's design."""

NCCL_FATAL: Final = frozenset(
    {
        NcclCode.SYSTEM_ERROR,
        NcclCode.INTERNAL_ERROR,
        NcclCode.REMOTE_ERROR,
        NcclCode.BANDWIDTH,
        NcclCode.WRONG_RESULT,
    }
)
"""What blames hardware; the first three are NVSentinel's design."""

FINDINGS_MAX: Final = 256
"""The most findings of one diagnosis, the fatal ones first."""


def of_diagnosis(diagnosis: Diagnosis, uuids: Mapping[int, str] | None = None) -> Judgement:
    """What a diagnosis means; `uuids` has the cards by the host engine's indices."""
    found = [one for result in diagnosis.results for one in _of_result(result, uuids or {})]
    findings = tuple(sorted(dict.fromkeys(found), key=lambda one: not one.fatal)[:FINDINGS_MAX])
    if findings and findings[0].fatal:
        return Judgement(Verdict.FAILED, findings, findings[0].message)
    if (untested := _untested(diagnosis)) is not None:
        return Judgement(Verdict.NOT_JUDGED, findings, untested)
    return Judgement(Verdict.PASSED, findings, _passed(diagnosis))


def of_nccl_tests(run: NcclRun, threshold_gbps: float, *, has_ended: bool = False) -> Judgement:
    """What a run of nccl-tests means, whose bus bandwidth has to be the threshold at least.

    `has_ended`: the program ended with 0, so that its tables are whole without their summary.
    """
    if run.failure is not None:
        return _failed(nccl_finding(run.failure.code, run.failure.evidence))
    if run.wrong:
        return _failed(nccl_finding(NcclCode.WRONG_RESULT, f"{run.wrong} values came out wrong"))
    if run.is_unmeasured:
        return _failed(nccl_finding(NcclCode.UNKNOWN, "a bus bandwidth of the largest sizes is no number"))
    if not run.complete and not (has_ended and run.tables):
        return Judgement(Verdict.NOT_JUDGED, (), "nccl-tests did not come to its end, and its output shows no error")
    return of_bandwidth(run.bandwidth_gbps, threshold_gbps)


def of_bandwidth(measured_gbps: float | None, threshold_gbps: float) -> Judgement:
    """What a bus bandwidth means; None is one that cannot be measured, as with a single card."""
    if measured_gbps is None:
        return Judgement(Verdict.NOT_JUDGED, (), "a single card has no bus bandwidth")
    words = f"{measured_gbps:.2f} GB/s bus bandwidth, threshold {threshold_gbps:.2f} GB/s"
    if measured_gbps < threshold_gbps:
        return _failed(nccl_finding(NcclCode.BANDWIDTH, words))
    return Judgement(Verdict.PASSED, (), words)


def nccl_finding(code: NcclCode, message: str) -> Finding:
    """The finding of an error of NCCL, which is about the node."""
    return Finding(code, code in NCCL_FATAL, NCCL_ACTIONS[code], message or f"{code}: its log does not say why")


def of_lost_card(error: CardLostError) -> Finding:
    """The finding of a card that nvidia-smi cannot reach; it names no UUID."""
    return Finding(error_name(FALLEN_OFF_BUS), True, RESTART_MACHINE, str(error))


def _failed(finding: Finding) -> Judgement:
    return Judgement(Verdict.FAILED, (finding,), finding.message)


def _of_result(result: DiagResult, uuids: Mapping[int, str]) -> Iterable[Finding]:
    """A finding for each error of a test that failed or warns; one where it has none."""
    if result.judged not in (DiagStatus.FAIL, DiagStatus.WARN):
        return
    gpu = uuids.get(result.gpu) if result.gpu is not None else None
    for error in result.errors or (DiagError(""),):
        fatal = result.judged is DiagStatus.FAIL and not error.is_persistence_mode
        action = _action(result.family, error) if fatal else NO_ACTION
        yield Finding(_code(result, error), fatal, action, _message(result, error), gpu)


def _action(family: DiagFamily, error: DiagError) -> str:
    is_reset = family is DiagFamily.SOFTWARE and error.severity == SEVERITY_RESET
    return RESET if is_reset else DIAG_ACTIONS[family]


def _code(result: DiagResult, error: DiagError) -> str:
    if error.number is not None:
        return error_name(error.number)
    if error.is_persistence_mode or result.is_about_persistence_mode:
        return error_name(PERSISTENCE_MODE)
    return f"DCGM_{result.family.name}_{result.judged.name}"


def _message(result: DiagResult, error: DiagError) -> str:
    where = "" if result.gpu is None else f" of GPU {result.gpu}"
    return f"{result.test}{where}: {error.message or result.judged.value}"


def _untested(diagnosis: Diagnosis) -> str | None:
    """Why a diagnosis without a failure says nothing about the hardware; None where it says something."""
    if not diagnosis.complete:
        return "the diagnosis is cut before its end"
    if not any(map(ran, diagnosis.results)):
        return "no test was run: all were skipped" if diagnosis.results else "no test was run"
    of_hardware = [one for one in diagnosis.results if one.family is not DiagFamily.SOFTWARE]
    if of_hardware and not any(map(ran, of_hardware)):
        return f"no test of the hardware was run: DCGM skipped {_names(of_hardware)}"
    return None


def _passed(diagnosis: Diagnosis) -> str:
    """What was run and found; a test of several cards counts once for each."""
    skipped = [one for one in diagnosis.results if not ran(one)]
    warnings = sum(one.judged is DiagStatus.WARN for one in diagnosis.results)
    words = f"tests run: {sum(map(ran, diagnosis.results))}, warnings: {warnings}, failures: 0"
    return f"{words}; DCGM skipped {_names(skipped)}" if skipped else words


def _names(results: Iterable[DiagResult]) -> str:
    return ", ".join(dict.fromkeys(result.test for result in results))
