"""What a check found, and how its process ends for it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpuledger.api.preflight import NEUTRAL_OUTCOMES, Detail, ExitCode, NotRun
from gpuledger.domain.preflight.findings import Finding, Judgement, Verdict
from gpuledger.events.health import Strategy
from gpuledger.events.preflight import CheckOutcome

ACTS: Final[Strategy] = "execute-remediation"

_EXITS: Final[Mapping[CheckOutcome, ExitCode]] = {
    "passed": ExitCode.PASSED,
    "skipped": ExitCode.PASSED,
    "failed": ExitCode.FAILED,
    "config-error": ExitCode.CONFIGURATION,
    "gang-timeout": ExitCode.GANG_TIMEOUT,
    "not-reported": ExitCode.NOT_REPORTED,
}

_OUTCOMES: Final[Mapping[Verdict, CheckOutcome]] = {
    Verdict.PASSED: "passed",
    Verdict.FAILED: "failed",
    Verdict.NOT_JUDGED: "skipped",
}


@dataclass(frozen=True, slots=True)
class CheckConclusion:
    """What a check found on its cards, which are named by UUID. Bandwidths are in GB/s (10^9 bytes).

    A finding that names no card concerns all of them. A check that passed may have findings too: warnings.
    """

    outcome: CheckOutcome
    message: str
    cards: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    bandwidth_gbps: float | None = None
    threshold_gbps: float | None = None
    gang_wait_s: float | None = None
    details: Mapping[Detail, str] = field(default_factory=dict)

    @property
    def is_neutral(self) -> bool:
        """Whether it says nothing about hardware."""
        return self.outcome in NEUTRAL_OUTCOMES

    @property
    def codes(self) -> tuple[str, ...]:
        """The error codes of all findings, each once."""
        return tuple(dict.fromkeys(finding.code for finding in self.findings))


def skipped(message: str) -> CheckConclusion:
    """The check does not apply here, or cannot judge what is here."""
    return CheckConclusion("skipped", message)


def failed(finding: Finding, cards: tuple[str, ...]) -> CheckConclusion:
    """The check failed for one reason."""
    return CheckConclusion("failed", finding.message, cards, (finding,))


def judged(judgement: Judgement, cards: tuple[str, ...]) -> CheckConclusion:
    """The result that a judgement amounts to."""
    return CheckConclusion(_OUTCOMES[judgement.verdict], judgement.message, cards, judgement.findings)


def exit_code(result: CheckConclusion, strategy: Strategy, not_run: NotRun) -> ExitCode:
    """How the process ends, once the report was taken or is of no consequence.

    A failure that is only to be stored blocks no pod, and neither does a check that cannot be carried out where the
    settings say so.
    """
    if result.outcome == "failed" and strategy != ACTS:
        return ExitCode.PASSED
    if result.outcome == "not-reported" and not_run is NotRun.CONTINUE:
        return ExitCode.PASSED
    return _EXITS[result.outcome]
