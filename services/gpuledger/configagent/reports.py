"""What the agent reports: the four annotations of its Node, and the fact for the ledger. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from gpuledger.api.machine_config import (
    ANNOTATION_CURRENT,
    ANNOTATION_LAST_ERROR,
    ANNOTATION_REBOOT_PENDING,
    ANNOTATION_STATE,
    OBSERVED_ANNOTATIONS,
    AgentState,
)
from gpuledger.configagent.steps import Outcome
from gpuledger.events.machine_config import CHANGES_MAX, ConfigChange, NodeConfigReported
from gpuledger.events.payload import truncated

ERROR_CHARS_MAX: Final = 1024
"""How long the annotation with the error may be; the fact has more."""

CUT: Final = "…"


@dataclass(frozen=True, slots=True)
class AgentReport:
    """How far the agent is: `revision` is what it works on, `current` what it completed last.

    `asked_at` is when the service asked for the revision. Asked again, the agent reports again, and its fact repeats
    that time, so that the service can tell which of its orders a report is about.
    """

    state: AgentState
    revision: str | None
    current: str | None
    error: str = ""
    reboot_pending: bool = False
    asked_at: str | None = None


def annotations_of(report: AgentReport) -> dict[str, str | None]:
    """The annotations of the Node; None: it has none of that name."""
    error = report.error if len(report.error) <= ERROR_CHARS_MAX else report.error[: ERROR_CHARS_MAX - 1] + CUT
    return {
        ANNOTATION_CURRENT: report.current,
        ANNOTATION_STATE: report.state.value,
        ANNOTATION_LAST_ERROR: error or None,
        ANNOTATION_REBOOT_PENDING: "true" if report.reboot_pending else "false",
    }


def observed_of(annotations: Mapping[str, str]) -> dict[str, str | None]:
    """The agent's annotations among those of its Node."""
    return {name: annotations.get(name) for name in OBSERVED_ANNOTATIONS}


def fact_of(report: AgentReport, outcomes: tuple[Outcome, ...], boot: str) -> NodeConfigReported:
    """The fact for the ledger; `boot` is empty while that is not known."""
    return NodeConfigReported(
        state=report.state.value,
        revision=report.revision,
        current_revision=report.current,
        desired_set_at=_time_of(report.asked_at),
        error=truncated(report.error),
        reboot_pending=report.reboot_pending,
        changes=tuple(map(_change, outcomes[:CHANGES_MAX])),
        change_count=len(outcomes),
        boot=boot or None,
    )


def _time_of(text: str | None) -> datetime | None:
    """The time that an annotation says; None where it says none, as anybody may have written it."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def _change(one: Outcome) -> ConfigChange:
    return ConfigChange.model_validate(
        {
            "subject": one.step.subject,
            "action": one.step.action,
            "outcome": one.outcome,
            "message": truncated(one.message),
        }
    )
