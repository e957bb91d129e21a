"""Plans what to change of a Node so that it is set aside as desired, and nothing of anybody else is lost. Pure.

An annotation on the Node says what of it is ours. It is written in the same request as the rest, so a writer that was
killed behind its write finds what it did, and what it finds without the annotation's word belongs to others: that
stays, also when the node is given back. Who removes the annotation takes the cordon, taints and labels over. The
annotation outlives a cordon or a label that somebody removed; where another manager has set one again since, as
`managedFields` say, it is that one's. They say nothing of single taints, which are one list.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from gpuledger.api.kinds import OUR_MANAGERS
from gpuledger.api.labels import ANNOTATION_ISOLATION
from gpuledger.domain.inventory.state import json_text
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.events.maintenance import Isolation, NodeTaint

Object = dict[str, Any]


class NodePlan(NamedTuple):
    """The merge patch that is missing (None: the Node is as desired), and what of the desired it has without us."""

    patch: Object | None
    was: Isolation


class _Parts(NamedTuple):
    """A Node's own cordon, taints and labels, and those of ours, as far as they are still there.

    `annotated` is what the annotation has, whatever became of it since.
    """

    is_cordoned: bool
    taints: list[Mapping[str, Any]]
    labels: Mapping[str, Any]
    ours: Isolation
    annotated: Isolation

    def has_cordon_of_others(self) -> bool:
        return self.is_cordoned and not self.ours.unschedulable

    def taints_of_others(self) -> list[Mapping[str, Any]]:
        ours = {_content(one.model_dump()) for one in self.ours.taints}
        return [one for one in self.taints if _content(one) not in ours]

    def labels_of_others(self) -> dict[str, Any]:
        return {key: value for key, value in self.labels.items() if self.ours.labels.get(key) != value}


def plan(node: Object, desired: Isolation) -> NodePlan:
    """What to change of a Node as the API server has it.

    The patch names the resourceVersion that it is based on, so that it is refused where somebody was faster.
    """
    parts = _parts_of(node)
    ours, was = _ours(parts, desired), _kept(parts, desired)
    spec: Object = {}
    is_cordoned = desired.unschedulable or parts.has_cordon_of_others()
    if is_cordoned != parts.is_cordoned:
        spec["unschedulable"] = True if is_cordoned else None
    taints = _taints(parts, ours)
    if taints != parts.taints:
        spec["taints"] = taints or None
    metadata: Object = {}
    if labels := _label_changes(parts, ours):
        metadata["labels"] = labels
    if ours != parts.annotated:
        metadata["annotations"] = {ANNOTATION_ISOLATION: None if ours.is_none() else _text(ours)}
    if not spec and not metadata:
        return NodePlan(None, was)
    metadata["resourceVersion"] = mapping(node, "metadata").get("resourceVersion")
    return NodePlan({"metadata": metadata, **({"spec": spec} if spec else {})}, was)


def _parts_of(node: Object) -> _Parts:
    spec, metadata = mapping(node, "spec"), mapping(node, "metadata")
    taints = [one for one in spec.get("taints") or () if isinstance(one, Mapping)]
    is_cordoned = spec.get("unschedulable") is True
    annotated = _annotated(mapping(metadata, "annotations"))
    ours = Isolation(
        unschedulable=annotated.unschedulable and not _is_of_others(metadata, "unschedulable", "f:spec"),
        taints=annotated.taints,
        labels={
            key: value
            for key, value in annotated.labels.items()
            if not _is_of_others(metadata, key, "f:metadata", "f:labels")
        },
    )
    return _Parts(is_cordoned, taints, mapping(metadata, "labels"), ours, annotated)


def _is_of_others(metadata: Mapping[str, Any], field: str, *where: str) -> bool:
    """Whether another manager has set a field, or wants it as it is as well; not where nothing is recorded of it."""
    return any(
        f"f:{field}" in mapping(entry, "fieldsV1", *where) and mapping(entry).get("manager") not in OUR_MANAGERS
        for entry in items(metadata, "managedFields")
    )


def _annotated(annotations: Mapping[str, Any]) -> Isolation:
    """What the annotation says is ours; nothing where it cannot be read, so that nothing of others is undone."""
    text = annotations.get(ANNOTATION_ISOLATION)
    if not isinstance(text, str):
        return Isolation()
    try:
        return Isolation.model_validate_json(text)
    except ValidationError:
        return Isolation()


def _ours(parts: _Parts, desired: Isolation) -> Isolation:
    """What of the desired is ours from now on: what nobody else has put on the Node."""
    others, labels = _names(parts.taints_of_others()), parts.labels_of_others()
    return Isolation(
        unschedulable=desired.unschedulable and not parts.has_cordon_of_others(),
        taints=tuple(one for one in desired.taints if (one.key, one.effect) not in others),
        labels={key: value for key, value in desired.labels.items() if key not in labels},
    )


def _kept(parts: _Parts, desired: Isolation) -> Isolation:
    """What others have put on the Node under the names of the desired."""
    names, labels = {(one.key, one.effect) for one in desired.taints}, parts.labels_of_others()
    taints = [one for one in parts.taints_of_others() if (one.get("key"), one.get("effect")) in names]
    return Isolation(
        unschedulable=parts.has_cordon_of_others(),
        taints=tuple(NodeTaint.model_validate({**one, "value": one.get("value") or ""}) for one in taints),
        labels={key: str(labels[key]) for key in desired.labels if key in labels},
    )


def _taints(parts: _Parts, ours: Isolation) -> list[Mapping[str, Any]]:
    """The Node's taints in their order, without those that were ours, and with those that are from now on."""
    missing = {_content(one.model_dump()): one for one in ours.taints}
    others = {_content(one) for one in parts.taints_of_others()}
    kept = []
    for one in parts.taints:
        content = _content(one)
        if content in others or missing.pop(content, None) is not None:
            kept.append(one)
    return [*kept, *(_taint(one) for one in missing.values())]


def _label_changes(parts: _Parts, ours: Isolation) -> dict[str, str | None]:
    gone = {key: None for key, value in parts.ours.labels.items() if parts.labels.get(key) == value}
    changes: dict[str, str | None] = {**gone, **ours.labels}
    return {key: value for key, value in changes.items() if parts.labels.get(key) != value}


def _names(taints: Iterable[Mapping[str, Any]]) -> set[tuple[Any, Any]]:
    """Kubernetes tells taints apart by these."""
    return {(one.get("key"), one.get("effect")) for one in taints}


def _content(taint: Mapping[str, Any]) -> tuple[Any, ...]:
    return (taint.get("key"), taint.get("value") or "", taint.get("effect"))


def _taint(taint: NodeTaint) -> Mapping[str, Any]:
    return {key: value for key, value in taint.model_dump().items() if value}


def _text(isolation: Isolation) -> str:
    return json_text(isolation.model_dump(mode="json", exclude_defaults=True))
