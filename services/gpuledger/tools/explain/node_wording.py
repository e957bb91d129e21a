"""The words of `why node`: what came of a report, and the sentence that answers. Pure."""

from collections.abc import Sequence
from typing import Any, Final

from gpuledger.domain.quarantine.rules import Verdict
from gpuledger.tools.explain.node_events import Assessment, Outcome, Report, Span, age_s

Document = dict[str, Any]

EXPRESSION_CHARS_MAX: Final = 160
"""Characters of an expression in a sentence; the verdicts have all of it."""

OUTCOMES: Final = {
    Outcome.ACTED: "led to the request of {owner}",
    Outcome.GIVEN_BACK: "led to the request of {owner}, which {by} released although it stands",
    Outcome.STORE_ONLY: "was not acted on: its strategy is {strategy}, and only execute-remediation acts",
    Outcome.IMPORTED: "was not acted on: it is imported, and history sets no node aside",
    Outcome.SKIPPED: "was not acted on: its monitor has quarantineOverrides skip the rules",
    Outcome.NO_RULES: "was not acted on: no rules were in force; `gpuledger quarantine apply` records some",
    Outcome.NO_MATCH: "was not acted on: no ruleset matched it; {verdicts}",
    Outcome.NOT_ASSESSED: "is not acted on yet: the service `health` has not come to it",
    Outcome.TOO_OLD: "was not acted on: it was {age} s old when the service came to it, and {max_age} s is the most",
    Outcome.BREAKER_OPEN: "was not acted on: the breaker is open, because {breaker}",
    Outcome.NO_NODE: "was not acted on: there was no Node of this name in the ledger",
    Outcome.NOT_REQUESTED: "was assessed, and no request followed: its ruleset is gone, or too many faults stand",
}


def outcome_words(report: Report, outcome: Outcome, span: Span | None, assessment: Assessment | None) -> str:
    """What came of a report."""
    end = None if span is None else span.end
    return OUTCOMES[outcome].format(
        owner="" if span is None else span.data.owner,
        by="" if end is None else end.event.source.removeprefix("/"),
        strategy=report.data.strategy,
        verdicts="; ".join(map(verdict_words, report.verdicts)) or "there are none",
        age="" if assessment is None else f"{age_s(report, assessment):,.0f}",
        max_age=f"{report.max_age_s:,}",
        breaker="" if assessment is None else assessment.breaker,
    )


def verdict_words(one: Verdict) -> str:
    """Why a ruleset did not match."""
    text = one.expression
    cut = text if len(text) <= EXPRESSION_CHARS_MAX else f"{text[:EXPRESSION_CHARS_MAX]}..."
    if not one.enabled:
        return f"{one.ruleset!r} is disabled"
    if one.matched:
        return f"{one.ruleset!r} matches"
    if one.failure:
        return f"{one.ruleset!r}: {cut} cannot be evaluated: {one.failure}"
    return f"{one.ruleset!r}: {cut} is false"


def answer(node: str, requests: Sequence[Document], reports: Sequence[Document]) -> str:
    """The sentence that answers."""
    in_force = [one for one in requests if one["ended"] is None]
    if in_force:
        return f"{node} is set aside " + "; and ".join(_held_by(one) for one in in_force)
    unhealthy = f", though {len(reports)} reports stand that it is unhealthy (see above)" if reports else ""
    if not requests:
        return f"{node} is not set aside: nobody has requested it{unhealthy}"
    last = requests[-1]
    return f"{node} is not set aside: {last['owner']} gave it back at {_text(last['ended'])}{unhealthy}"


def _held_by(one: Document) -> str:
    latency = one["latencyMs"]
    quick = f", in force {latency:,.0f} ms after its cause was recorded" if latency is not None else ""
    return f"by {one['owner']} since {_text(one['since'])}, {one['state']}{quick}"


def _text(time: Any) -> str:  # noqa: ANN401 - a time
    return str(time.isoformat(timespec="seconds")).replace("+00:00", "Z")
