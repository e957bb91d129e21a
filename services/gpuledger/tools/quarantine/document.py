"""Reads a document of quarantine rules from YAML, in the form of NVSentinel's rulesets, and checks it whole.

Nothing of it is in force before it is recorded; what is wrong is reported with the file, the ruleset and the place.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from gpuledger.domain.quarantine.rules import problems
from gpuledger.edge.kube.schema.object_names import label_value_problem, qualified_name_problem
from gpuledger.events.maintenance import Drain
from gpuledger.events.quarantine import BreakerLimits, DrainScope, QuarantineRulesApplied
from gpuledger.tools.document_forms import Duration, Entries, Form, RulesForm

ENTRIES: Final = Entries("ruleSets")
_OF_ANOTHER_PRODUCT: Final = "MaxPercentageOfNodesToCordon"


class _Expression(Form):
    kind: str | None = None
    expression: str

    @field_validator("kind")
    @classmethod
    def _is_kind(cls, kind: str | None) -> str | None:
        if kind == _OF_ANOTHER_PRODUCT:
            raise ValueError(f"{kind} is set for all rulesets together: circuitBreaker.percentage")
        if kind not in (None, "HealthEvent", "Node"):
            raise ValueError("it is HealthEvent or Node")
        return kind


class _Match(Form):
    all: list[_Expression] = []
    any: list[_Expression] = []


class _Cordon(Form):
    should_cordon: bool


class _Taint(Form):
    key: str
    value: str = ""
    effect: str


class _NamespaceMode(Form):
    name: str
    mode: str


class _Drain(Form):
    mode: str = Drain().mode
    timeout: Duration = Drain().timeout_s
    namespaces: list[_NamespaceMode] = []
    scope: DrainScope = "node"

    def drain(self) -> dict[str, Any]:
        """The drain as it is recorded."""
        modes = [{"namespaces": one.name, "mode": one.mode} for one in self.namespaces]
        return {"mode": self.mode, "timeout_s": self.timeout, "namespaces": modes}


class _Ruleset(Form):
    version: Literal["1"] = "1"
    name: str
    enabled: bool = True
    priority: int = 0
    match: _Match
    cordon: _Cordon | None = None
    taint: _Taint | None = None
    taints: list[_Taint] = []
    labels: dict[str, str] = {}
    drain: _Drain | None = None

    def ruleset(self) -> dict[str, Any]:
        """The ruleset as it is recorded; what is left out of it leaves the version of a document as it was."""
        taints = [*([] if self.taint is None else [self.taint]), *self.taints]
        return {
            "name": self.name,
            "enabled": self.enabled,
            "priority": self.priority,
            "match": self.match.model_dump(),
            "cordon": self.cordon is not None and self.cordon.should_cordon,
            "taints": [one.model_dump() for one in taints],
            "labels": self.labels,
            **({} if self.drain is None else {"drain": self.drain.drain()}),
            **({} if self.drain is None or self.drain.scope == "node" else {"drain_scope": self.drain.scope}),
        }


class _Breaker(Form):
    percentage: int = BreakerLimits().percentage
    duration: Duration = BreakerLimits().window_s


class _Document(RulesForm):
    kind: Literal["QuarantineRules"]
    circuit_breaker: _Breaker = _Breaker.model_construct()
    rule_sets: list[_Ruleset] = Field(default=[])

    def content(self) -> dict[str, Any]:
        """What is recorded of it."""
        return {
            "rulesets": [one.ruleset() for one in self.rule_sets],
            "breaker": {"percentage": self.circuit_breaker.percentage, "window_s": self.circuit_breaker.duration},
        }


def parse(text: bytes, file: str) -> QuarantineRulesApplied:
    """The rules in a text; `file` is the name by which the user gave it.

    Raises:
        RequestError: something is wrong with them.
    """
    return ENTRIES.read(text, file, _Document, QuarantineRulesApplied, _problems)


def _problems(document: QuarantineRulesApplied) -> Iterator[str]:
    """What no rule can be, and then what Kubernetes would not take."""
    yield from problems(document)
    for at, one in enumerate(document.rulesets):
        place = f"ruleSets[{at}] {one.name!r}"
        for taint in one.taints:
            yield from _problem(f"{place}: the key {taint.key!r} of the taint", qualified_name_problem(taint.key))
            yield from _problem(f"{place}: the value {taint.value!r} of the taint", label_value_problem(taint.value))
        for key, value in one.labels.items():
            yield from _problem(f"{place}: the key {key!r} of the label", qualified_name_problem(key))
            yield from _problem(f"{place}: the value {value!r} of the label", label_value_problem(value))


def _problem(what: str, problem: str | None) -> Iterator[str]:
    if problem is not None:
        yield f"{what} is not valid: it {problem}."
