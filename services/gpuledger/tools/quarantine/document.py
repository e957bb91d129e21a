"""Reads a document of quarantine rules from YAML, in the form of NVSentinel's rulesets, and checks it whole.

Nothing of it is in force before it is recorded; what is wrong is reported with the file, the ruleset and the place.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.quarantine.rules import problems
from gpuledger.edge.kube.schema.cel_values import parsed_duration
from gpuledger.edge.kube.schema.object_names import label_value_problem, qualified_name_problem
from gpuledger.events.maintenance import Drain
from gpuledger.events.quarantine import BreakerLimits, DrainScope, QuarantineRulesApplied
from gpuledger.tools.errors import RequestError

DOCUMENT_BYTES_MAX: Final = 256 * 1024
"""How large a document may be: it is recorded as one event."""

PROBLEMS_SHOWN_MAX: Final = 10
CORRECT: Final = "Correct it, and run the command again"

_OF_ANOTHER_PRODUCT: Final = "MaxPercentageOfNodesToCordon"


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("it is a duration such as 10m")
    found = parsed_duration(value)
    if found is None:
        raise ValueError(f"{value!r} is no duration such as 10m")
    seconds = found.total_seconds()
    if seconds != int(seconds):
        raise ValueError(f"{value!r} is not a whole number of seconds")
    return int(seconds)


Duration = Annotated[int, BeforeValidator(_seconds)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, strict=True)


class _Expression(_Form):
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


class _Match(_Form):
    all: list[_Expression] = []
    any: list[_Expression] = []


class _Cordon(_Form):
    should_cordon: bool


class _Taint(_Form):
    key: str
    value: str = ""
    effect: str


class _NamespaceMode(_Form):
    name: str
    mode: str


class _Drain(_Form):
    mode: str = Drain().mode
    timeout: Duration = Drain().timeout_s
    namespaces: list[_NamespaceMode] = []
    scope: DrainScope = "node"

    def drain(self) -> dict[str, Any]:
        """The drain as it is recorded."""
        modes = [{"namespaces": one.name, "mode": one.mode} for one in self.namespaces]
        return {"mode": self.mode, "timeout_s": self.timeout, "namespaces": modes}


class _Ruleset(_Form):
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


class _Breaker(_Form):
    percentage: int = BreakerLimits().percentage
    duration: Duration = BreakerLimits().window_s


class _Document(_Form):
    kind: Literal["QuarantineRules"]
    max_event_age: Duration = 600
    circuit_breaker: _Breaker = _Breaker.model_construct()
    rule_sets: list[_Ruleset] = Field(default=[])


def parse(text: bytes, file: str) -> QuarantineRulesApplied:
    """The rules in a text; `file` is the name by which the user gave it.

    Raises:
        RequestError: something is wrong with them.
    """
    if len(text) > DOCUMENT_BYTES_MAX:
        raise RequestError(
            f"{file} has {len(text):,} bytes, and a document has at most {DOCUMENT_BYTES_MAX:,}", CORRECT
        )
    raw = _loaded(text, file)
    try:
        form = _Document.model_validate(raw)
        document = _recorded(form, file)
    except ValidationError as error:
        raise _refused(file, _problems_of(error, raw)) from error
    found = [*problems(document), *_problems_of_names(document)]
    if found:
        raise _refused(file, found)
    return document


def _recorded(form: _Document, file: str) -> QuarantineRulesApplied:
    content = {
        "rulesets": [one.ruleset() for one in form.rule_sets],
        "breaker": {"percentage": form.circuit_breaker.percentage, "window_s": form.circuit_breaker.duration},
        "max_event_age_s": form.max_event_age,
    }
    digest = hashlib.sha256(json_text(content).encode()).hexdigest()
    return QuarantineRulesApplied.model_validate({**content, "digest": digest, "file": file})


def _problems_of_names(document: QuarantineRulesApplied) -> Iterator[str]:
    """What Kubernetes would not take."""
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


def _loaded(text: bytes, file: str) -> object:
    try:
        return yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 - it is a safe loader that refuses repeated keys
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise RequestError(f"{file} is no YAML: {error.problem}{where}", CORRECT) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RequestError(f"{file} is no YAML: {error}", CORRECT) from error


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a mapping that has a key twice, of which YAML would silently drop one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, if each of its keys is there once."""
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if isinstance(name, str) and name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} is there twice", key.start_mark)
            seen.add(name if isinstance(name, str) else None)
        return super().construct_mapping(node, deep)


def _problems_of(error: ValidationError, raw: object) -> list[str]:
    return [
        f"{_place(problem['loc'], raw)}: {problem['msg'].removeprefix('Value error, ')}."
        for problem in error.errors(include_url=False, include_input=False)
    ]


def _place(loc: tuple[int | str, ...], raw: object) -> str:
    """A place in a document, with the name of the ruleset that it is in."""
    parts = {"rulesets": "ruleSets", "rule_sets": "ruleSets"}
    text = "".join(f"[{one}]" if isinstance(one, int) else f".{parts.get(one, one)}" for one in loc)
    if len(loc) < 2 or not isinstance(loc[1], int) or not isinstance(raw, Mapping):
        return text.removeprefix(".") or "the document"
    rulesets = raw.get("ruleSets")
    found = rulesets[loc[1]] if isinstance(rulesets, list) and loc[1] < len(rulesets) else None
    name = found.get("name") if isinstance(found, Mapping) else None
    return text.removeprefix(".") + (f" of {name!r}" if isinstance(name, str) else "")


def _refused(file: str, found: list[str]) -> RequestError:
    shown = " ".join(found[:PROBLEMS_SHOWN_MAX])
    more = f" There are {len(found) - PROBLEMS_SHOWN_MAX} more." if len(found) > PROBLEMS_SHOWN_MAX else ""
    return RequestError(f"{file}: {shown}{more}", CORRECT)
