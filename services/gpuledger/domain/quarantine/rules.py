"""Which rulesets a report matches, and what is wrong with a document of rules. Pure.

A document is checked when it is configured. One that was recorded counts as it is: an expression that does not
compile here, or cannot be evaluated over a report, matches nothing, and that is counted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import product
from typing import Any, Final, NamedTuple

from gpuledger.domain.cel_source import selected_fields
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.quarantine.expressions import Condition, ExpressionError, Variables, check, compiled
from gpuledger.domain.quarantine.inputs import EVENT_FIELDS, FIELDS, node_fields
from gpuledger.domain.quarantine.overrides import counted_for, is_variant_name, variants
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.quarantine import QuarantineRulesApplied, QuarantineRuleset, RuleExpression, RuleMatch

FORCED: Final = "forced"
"""The ruleset of reports that are to act without any rule that matches."""

DOCUMENTS_MAX: Final = 4
"""How many documents are kept compiled: those that folds of one process follow."""


FORCED_RULESET: Final = QuarantineRuleset(name=FORCED, match=RuleMatch(), cordon=True)


class Evaluation(NamedTuple):
    """The rulesets that a report matches, the first in order first, and why others could not be evaluated."""

    matched: tuple[QuarantineRuleset, ...]
    failed: Mapping[str, str]

    def names(self, data: NodeHealthReported) -> list[str]:
        """The names of what a report counts for: the rulesets, or variants of them that its overrides make."""
        return names_of(self.matched, data)


def names_of(matched: Sequence[QuarantineRuleset], data: NodeHealthReported) -> list[str]:
    """The names of what a report counts for that matches these rulesets; a forced one needs none that matches."""
    found = matched or ([FORCED_RULESET] if data.quarantine.force else [])
    return [name for one in found if (name := counted_for(one, data.drain)) is not None]


class Verdict(NamedTuple):
    """What came of a ruleset for a report: the `expression` that does not hold, or the `failure` of one.

    Of `any` no expression held, so the verdict has the first; `enabled` is false where the ruleset did not count.
    """

    ruleset: str
    matched: bool
    expression: str = ""
    failure: str = ""
    enabled: bool = True


class _Conditions(NamedTuple):
    ruleset: QuarantineRuleset
    all: tuple[Condition | str, ...]
    any: tuple[Condition | str, ...]


class RulesInForce:
    """The rulesets of a document that are enabled, compiled, in their order."""

    def __init__(self, document: QuarantineRulesApplied) -> None:
        self.document = document
        enabled = (one for one in document.rulesets if one.enabled)
        ordered = sorted(enabled, key=lambda one: (-one.priority, one.name))
        every = [*ordered, FORCED_RULESET]
        self.by_name: Mapping[str, QuarantineRuleset] = {one.name: one for one in (*variants(every), *every)}
        self.order: Mapping[str, int] = {
            one.name: at for at, ruleset in enumerate(ordered) for one in (ruleset, *variants([ruleset]))
        }
        self._conditions = [_Conditions(one, _compiled(one.match.all), _compiled(one.match.any)) for one in ordered]

        self.event_fields = _event_fields(ordered)
        """The fields of reports that the rules use."""

    def evaluate(self, variables: Variables) -> Evaluation:
        """What a report matches."""
        matched, failed = [], {}
        for one in self._conditions:
            try:
                if _matches(one, variables):
                    matched.append(one.ruleset)
            except ExpressionError as error:
                failed[one.ruleset.name] = str(error)
        return Evaluation(tuple(matched), failed)

    def verdicts(self, variables: Variables) -> Iterator[Verdict]:
        """What came of each ruleset for a report, and why; those that do not count come last."""
        yield from (_verdict(one, variables) for one in self._conditions)
        yield from (Verdict(one.name, False, enabled=False) for one in self.document.rulesets if not one.enabled)


@lru_cache(maxsize=DOCUMENTS_MAX)
def rules_of(document: str) -> RulesInForce:
    """The rules of a document, from its canonical JSON."""
    return RulesInForce(QuarantineRulesApplied.model_validate_json(document))


def document_text(document: QuarantineRulesApplied) -> str:
    """The canonical JSON of a document."""
    return json_text(document.model_dump(mode="json"))


def problems(document: QuarantineRulesApplied) -> Iterator[str]:
    """What is wrong with a document, each with its place."""
    names = Counter(one.name for one in document.rulesets)
    for at, one in enumerate(document.rulesets):
        place = f"ruleSets[{at}] {one.name!r}"
        if names[one.name] > 1:
            yield f"{place}: another ruleset has this name."
        if one.name == FORCED:
            yield f"{place}: the name is that of reports that force a quarantine; choose another one."
        if is_variant_name(one.name):
            yield f"{place}: names that end so are those of reports that override drains; choose another one."
        if not (one.match.all or one.match.any):
            yield f"{place}: match has no expressions in all or any, so that everything would match."
        if not (one.cordon or one.taints or one.labels or one.drain):
            yield f"{place}: it does nothing; set cordon.shouldCordon, taint, labels or drain."
        yield from _problems_of_match(place, one.match)


def _problems_of_match(place: str, match: RuleMatch) -> Iterator[str]:
    for name, expressions in (("all", match.all), ("any", match.any)):
        for at, one in enumerate(expressions):
            try:
                check(one.expression, FIELDS[one.kind], _SAMPLES)
            except ExpressionError as error:
                yield f"{place}: match.{name}[{at}].expression: {error}."


def _event_fields(rulesets: Iterable[QuarantineRuleset]) -> frozenset[str]:
    expressions = [one.expression for ruleset in rulesets for one in (*ruleset.match.all, *ruleset.match.any)]
    used = [selected_fields(text, "event") for text in expressions]
    return frozenset().union(*(EVENT_FIELDS.keys() if one is None else one for one in used))


def _compiled(expressions: tuple[RuleExpression, ...]) -> tuple[Condition | str, ...]:
    return tuple(_condition(one.expression) for one in expressions)


def _condition(text: str) -> Condition | str:
    try:
        return compiled(text)
    except ExpressionError as error:
        return str(error)


def _matches(one: _Conditions, variables: Variables) -> bool:
    """All of `all` hold, and one of `any`; raises ExpressionError where what decides cannot be evaluated."""
    for condition in one.all:
        if not _holds(condition, variables):
            return False
    return not one.any or _any_holds(one.any, variables)


def _verdict(one: _Conditions, variables: Variables) -> Verdict:
    name, match = one.ruleset.name, one.ruleset.match
    for condition, expression in zip(one.all, match.all, strict=True):
        try:
            if not _holds(condition, variables):
                return Verdict(name, False, expression.expression)
        except ExpressionError as error:
            return Verdict(name, False, expression.expression, str(error))
    try:
        matched = not one.any or _any_holds(one.any, variables)
    except ExpressionError as error:
        return Verdict(name, False, match.any[0].expression, str(error))
    return Verdict(name, matched, "" if matched else match.any[0].expression)


def _any_holds(conditions: tuple[Condition | str, ...], variables: Variables) -> bool:
    failure: ExpressionError | None = None
    for condition in conditions:
        try:
            if _holds(condition, variables):
                return True
        except ExpressionError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return False


def _holds(condition: Condition | str, variables: Variables) -> bool:
    if isinstance(condition, str):
        raise ExpressionError(condition)
    return variables.holds(condition)


def _sample(*, fatal: bool, healthy: bool) -> dict[str, Any]:
    """A report as rules see it, with numbers for texts, so that rules may read them as such."""
    overrides = {"force": False, "skip": False}
    texts = ("id", "agent", "componentClass", "checkName", "message", "customRecommendedAction", "nodeName")
    return {
        **dict.fromkeys(texts, "0"),
        "version": 1,
        "isFatal": fatal,
        "isHealthy": healthy,
        "errorCode": ["0"],
        "recommendedAction": 0,
        "entitiesImpacted": [{"entityType": "0", "entityValue": "0"}],
        "metadata": {},
        "processingStrategy": 1,
        "generatedTimestamp": {"seconds": 0, "nanos": 0},
        "quarantineOverrides": overrides,
        "drainOverrides": overrides,
    }


_SAMPLES: Final = tuple(
    Variables({"event": partial(_sample, fatal=fatal, healthy=healthy), "node": partial(node_fields, "0", {})})
    for fatal, healthy in product((True, False), repeat=2)
)
