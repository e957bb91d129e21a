"""Which remedy a fault gets, what is wrong with a document of remedies, and the object that one gives. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import orjson

from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.remediation.templates import ANNOTATION, LONGEST, problems_of, rendered
from gpuledger.events.nvsentinel import ACTION_NUMBERS
from gpuledger.events.remediation import (
    MANIFEST_LENGTH_MAX,
    REMEDY_NAME_MAX,
    OutcomeSign,
    RemediationRequested,
    RemediationRulesApplied,
    Remedy,
    RemedyObject,
)

CUSTOM: Final = "CUSTOM"
"""The recommended action that only its custom one explains."""

NONE: Final = "NONE"
"""The recommended action of reports that recommend nothing."""

DOCUMENTS_MAX: Final = 4
"""How many documents are kept parsed: those that folds of one process follow."""

_DIGEST_LENGTH: Final = 10
_METADATA_LENGTH_MAX: Final = len('"metadata":{"name":"-"},') + REMEDY_NAME_MAX + _DIGEST_LENGTH
_LENGTH_MAX: Final = MANIFEST_LENGTH_MAX - _METADATA_LENGTH_MAX
"""How long the object of a template may become before it has its name."""

_PATH = re.compile(r"[A-Za-z][A-Za-z0-9]*(\.[A-Za-z][A-Za-z0-9]*)*").fullmatch


class RemediesInForce:
    """The remedies of a document, by name and by recommended action."""

    def __init__(self, document: RemediationRulesApplied) -> None:
        self.document = document
        self.by_name: Mapping[str, Remedy] = {one.name: one for one in document.remedies}
        self._by_action = {action: one.name for one in document.remedies for action in one.actions}
        self._by_custom = {action: one.name for one in document.remedies for action in one.custom_actions}

    def of_action(self, action: str, custom_action: str) -> Remedy | None:
        """The remedy for a recommended action; None if there is none."""
        name = self._by_custom.get(custom_action) if action == CUSTOM else self._by_action.get(action)
        return None if name is None else self.by_name[name]


@lru_cache(maxsize=DOCUMENTS_MAX)
def remedies_of(document: str) -> RemediesInForce:
    """The remedies of a document, from its canonical JSON."""
    return RemediesInForce(RemediationRulesApplied.model_validate_json(document))


def document_text(document: RemediationRulesApplied) -> str:
    """The canonical JSON of a document."""
    return json_text(document.model_dump(mode="json"))


def object_of(remedy: Remedy, seed: str, values: Mapping[str, str]) -> RemedyObject:
    """The object of a remedy; its name follows from `seed`, so whoever decides it gives the same.

    `values` are those of the placeholders; the id of the remediation is added when it is created.
    """
    obj: dict[str, Any] = rendered(orjson.loads(remedy.template), {**values, "remedy": remedy.name})
    metadata = obj.setdefault("metadata", {})
    metadata["name"] = f"{remedy.name}-{sha256(seed.encode()).hexdigest()[:_DIGEST_LENGTH]}"
    return RemedyObject(
        api_version=obj["apiVersion"],
        kind=obj["kind"],
        resource=remedy.resource,
        namespace=metadata.get("namespace"),
        name=metadata["name"],
        manifest=json_text(obj),
    )


def request_of(text: str) -> RemediationRequested:
    """What was requested, from its canonical JSON."""
    return RemediationRequested.model_validate_json(text)


def owned(obj: Mapping[str, Any], intent: str) -> dict[str, Any]:
    """An object that says which remediation it is of."""
    metadata = obj["metadata"]
    annotations = {**(metadata.get("annotations") or {}), ANNOTATION: intent}
    labels = {**(metadata.get("labels") or {}), "app.kubernetes.io/managed-by": "gpuledger"}
    return {**obj, "metadata": {**metadata, "annotations": annotations, "labels": labels}}


def is_owned(obj: Mapping[str, Any], intent: str) -> bool:
    """Whether an object is of a remediation."""
    return (obj.get("metadata", {}).get("annotations") or {}).get(ANNOTATION) == intent


def problems(document: RemediationRulesApplied) -> Iterator[str]:
    """What is wrong with a document, each with its place."""
    names = Counter(one.name for one in document.remedies)
    actions = Counter(action for one in document.remedies for action in one.actions)
    customs = Counter(action for one in document.remedies for action in one.custom_actions)
    for at, one in enumerate(document.remedies):
        place = f"remedies[{at}] {one.name!r}"
        if names[one.name] > 1:
            yield f"{place}: another remedy has this name."
        yield from _problems_of_actions(place, one, actions, customs)
        yield from _problems_of_escalation(place, one, document)
        yield from _problems_of_template(place, one)
        yield from _problems_of_sign(f"{place}: outcome.succeeded", one.succeeded)
        if one.failed is not None:
            yield from _problems_of_sign(f"{place}: outcome.failed", one.failed)


def _problems_of_actions(
    place: str, one: Remedy, actions: Mapping[str, int], customs: Mapping[str, int]
) -> Iterator[str]:
    for action in one.actions:
        if action not in ACTION_NUMBERS or action in (NONE, CUSTOM):
            names = ", ".join(name for name in ACTION_NUMBERS if name not in (NONE, CUSTOM))
            yield f"{place}: actions: {action!r} is none of {names}; what CUSTOM means is in customActions."
        elif actions[action] > 1:
            yield f"{place}: actions: another remedy is for {action} as well."
    for action in one.custom_actions:
        if customs[action] > 1:
            yield f"{place}: customActions: another remedy is for {action!r} as well."


def _problems_of_escalation(place: str, one: Remedy, document: RemediationRulesApplied) -> Iterator[str]:
    by_name = {remedy.name: remedy for remedy in document.remedies}
    if one.escalate_to is None:
        return
    if one.escalate_to not in by_name:
        yield f"{place}: escalateTo: there is no remedy {one.escalate_to!r}."
        return
    seen, following = {one.name}, by_name.get(one.escalate_to)
    while following is not None:
        if following.name in seen:
            yield f"{place}: escalateTo: the escalation comes back to {following.name!r}, and would never end."
            return
        seen.add(following.name)
        following = by_name.get(following.escalate_to or "")


def _problems_of_template(place: str, one: Remedy) -> Iterator[str]:
    template = orjson.loads(one.template)
    for field in ("apiVersion", "kind"):
        if not isinstance(template.get(field), str) or not template[field] or "$" in template[field]:
            yield f"{place}: template.{field}: it is the text that the API has, without placeholders."
    metadata = template.get("metadata", {})
    if not isinstance(metadata, dict):
        yield f"{place}: template.metadata: it is a mapping."
        return
    for field in ("name", "generateName"):
        if field in metadata:
            yield f"{place}: template.metadata.{field}: gpuledger names the object; leave it out."
    for field in ("labels", "annotations"):
        found = metadata.get(field, {})
        if not (isinstance(found, dict) and all(isinstance(value, str) for value in found.values())):
            yield f"{place}: template.metadata.{field}: it is a mapping of texts."
    namespace = metadata.get("namespace", "x")
    if not isinstance(namespace, str) or not namespace or "$" in namespace:
        yield f"{place}: template.metadata.namespace: it is a text without placeholders."
    found = list(problems_of(template, has_device=one.scope == "device"))
    yield from (f"{place}: template.{problem}" for problem in found)
    length = 0 if found else len(json_text(rendered(template, {**LONGEST, "remedy": one.name})))
    if length > _LENGTH_MAX:
        yield (
            f"{place}: template: with the longest values of its placeholders it has {length:,} characters, "
            f"and it may have {_LENGTH_MAX:,}."
        )


def _problems_of_sign(place: str, sign: OutcomeSign) -> Iterator[str]:
    if (sign.condition is None) == (sign.path is None):
        yield f"{place}: it has either condition, or path and values."
    elif sign.path is not None and not sign.values:
        yield f"{place}: path needs values."
    elif sign.path is not None and not _PATH(sign.path):
        yield f"{place}.path: {sign.path!r} is no path such as status.phase."
