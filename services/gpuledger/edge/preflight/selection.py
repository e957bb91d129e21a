"""Which of the configured checks a pod gets. Pure.

An annotation narrows them: of the namespace for all of its pods, of a pod for that pod alone. All pods of a gang go
through its checks or none does, so a pod's own annotation cannot take it out of those; its namespace's can, because a
gang is within one.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gpuledger.api.preflight import ANNOTATION_CHECKS, UPSTREAM_ANNOTATION_CHECKS
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.preflight.configuration import Check
from gpuledger.edge.webhooks.serving.review import Object

SHOWN_MAX = 200
"""How much of an annotation a warning repeats."""


class LeftOut(NamedTuple):
    """A check that a pod does not get: `narrowed`, `no-gang` or `no-network`."""

    check: str
    reason: str


class CheckSelection(NamedTuple):
    """The checks of a pod in their order, those that it does not get, and what its owner should read."""

    checks: tuple[Check, ...]
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()


class Circumstances(NamedTuple):
    """What decides about a pod's checks beside its annotation; `namespace` is the object of its namespace, if any."""

    namespace: Object | None
    has_gang: bool
    has_network: bool


def selected(checks: tuple[Check, ...], pod: Object, around: Circumstances) -> CheckSelection:
    """The checks of a pod."""
    names = frozenset(check.name for check in checks)
    of_namespace, of_pod = _narrowed(around.namespace), _narrowed(pod)
    reasons = {check.name: _reason(check, of_namespace, of_pod, around) for check in checks}
    chosen = tuple(check for check in checks if reasons[check.name] is None)
    left_out = tuple(LeftOut(name, reason) for name, reason in reasons.items() if reason is not None)
    kept = [check.name for check in chosen if of_pod is not None and check.name not in of_pod]
    return CheckSelection(chosen, left_out, (*_warn_of_unconfigured(of_pod, names), *_warn_of_gang_checks(kept)))


def _reason(
    check: Check, of_namespace: frozenset[str] | None, of_pod: frozenset[str] | None, around: Circumstances
) -> str | None:
    if of_namespace is not None and check.name not in of_namespace:
        return "narrowed"
    if of_pod is not None and check.name not in of_pod and not (check.is_for_gangs and around.has_gang):
        return "narrowed"
    if check.is_for_gangs and not around.has_gang:
        return "no-gang"
    return "no-network" if check.needs_network and not around.has_network else None


def _narrowed(obj: Object | None) -> frozenset[str] | None:
    """The checks that an annotation names; None without one."""
    annotations = mapping(obj, "metadata", "annotations")
    for key in (ANNOTATION_CHECKS, UPSTREAM_ANNOTATION_CHECKS):
        text = annotations.get(key)
        if isinstance(text, str):
            return frozenset(filter(None, map(str.strip, text.split(","))))
    return None


def _warn_of_unconfigured(of_pod: frozenset[str] | None, names: frozenset[str]) -> Iterator[str]:
    named = ", ".join(sorted((of_pod or frozenset()) - names))
    if named:
        existing = ", ".join(sorted(names)) or "none"
        yield f"{ANNOTATION_CHECKS} names checks that there are not: {named[:SHOWN_MAX]}. There are: {existing}."


def _warn_of_gang_checks(names: list[str]) -> Iterator[str]:
    if names:
        yield (
            f"{ANNOTATION_CHECKS} of a pod does not leave out {', '.join(names)}, which its gang goes through "
            "together. The annotation of the namespace does."
        )
