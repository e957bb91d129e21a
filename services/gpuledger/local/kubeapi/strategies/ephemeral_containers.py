"""Ephemeral containers of a pod, as `kubectl debug` adds them: only through their own subresource, for good. Pure."""

from collections.abc import Iterator
from typing import Final

from gpuledger.edge.kube.schema.causes import Cause, Object, duplicate, forbidden, invalid, required
from gpuledger.edge.kube.schema.object_names import dns_label_problem
from gpuledger.local.kubeapi.strategies.core_shared import at

SUBRESOURCE: Final = "ephemeralcontainers"
FIELD: Final = "ephemeralContainers"

_PATH: Final = f"spec.{FIELD}"
_NOT_THEIRS: Final = ("lifecycle", "livenessProbe", "ports", "readinessProbe", "resources", "startupProbe")
"""Fields of containers that an ephemeral one must not have."""


def with_new_containers(pod: Object, old: Object) -> None:
    """Turn a pod in place into the old one with the ephemeral containers of the new one: the rest is not written."""
    added = at(pod, "spec").get(FIELD)
    others = {name: value for name, value in old["spec"].items() if name != FIELD}
    pod.clear()
    pod.update(old | {"metadata": {**old["metadata"]}, "spec": others | ({FIELD: added} if added else {})})


def creation_causes(pod: Object) -> Iterator[Cause]:
    """What is wrong with those of a new pod: it has none."""
    if at(pod, "spec").get(FIELD):
        yield forbidden(_PATH, "cannot be set on create")


def update_causes(pod: Object, old: Object) -> Iterator[Cause]:
    """What is wrong with a pod that has others than before: none of them changes or goes."""
    present = {one.get("name"): one for one in at(pod, "spec").get(FIELD) or ()}
    for one in at(old, "spec").get(FIELD) or ():
        if present.get(one["name"]) != one:
            change = "changed" if one["name"] in present else "removed"
            yield forbidden(_PATH, f'existing ephemeral containers "{one["name"]}" may not be {change}')
    yield from _container_causes(at(pod, "spec"))


def _container_causes(spec: Object) -> Iterator[Cause]:
    others = {one.get("name") for part in ("containers", "initContainers") for one in spec.get(part) or ()}
    taken = set(others)
    for index, one in enumerate(spec.get(FIELD) or ()):
        field = f"{_PATH}[{index}]"
        yield from _name_causes(one.get("name") or "", f"{field}.name", taken)
        taken.add(one.get("name"))
        if not one.get("image"):
            yield required(f"{field}.image")
        if (target := one.get("targetContainerName")) and target not in others:
            yield Cause("FieldValueNotFound", f'Not found: "{target}"', f"{field}.targetContainerName")
        for name in _NOT_THEIRS:
            if one.get(name):
                yield forbidden(f"{field}.{name}", "cannot be set for an Ephemeral Container")


def _name_causes(name: str, field: str, taken: set[str | None]) -> Iterator[Cause]:
    if not name:
        yield required(field)
    elif problem := dns_label_problem(name):
        yield invalid(field, name, problem)
    elif name in taken:
        yield duplicate(field, name)
