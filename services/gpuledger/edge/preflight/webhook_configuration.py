"""The webhook configuration, which tells API servers which pods to send to the webhook. Pure.

A match condition keeps away the pods that request no GPUs and no claims, which start even while no webhook runs; a pod
with marks or names of checks is sent in any case, because only the webhook may set them.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from gpuledger.api.kinds import PODS
from gpuledger.api.preflight import CHECK_PREFIX, LABEL_PREFLIGHT
from gpuledger.edge.preflight.configuration import PreflightConfiguration
from gpuledger.edge.preflight.injection import OWN_ANNOTATIONS
from gpuledger.edge.preflight.reserved import EPHEMERAL
from gpuledger.edge.preflight.settings import PreflightSettings
from gpuledger.edge.webhooks.configuration import MUTATING, Configuration, WebhookTarget, configuration, webhook

NAME: Final = "gpuledger-preflight"
HOOK: Final = "preflight.gpuledger.io"
EPHEMERAL_HOOK: Final = "ephemeral.preflight.gpuledger.io"
IMAGES_HOOK: Final = "images.preflight.gpuledger.io"
EPHEMERAL_PLURAL: Final = "ephemeralcontainers"
"""Of pods: what `kubectl debug` writes."""

MUTATE_PATH: Final = "/mutate-pod"
CONFIGURATIONS: Final = ((MUTATING, NAME),)
"""Kind and name."""

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label with a namespace's name, which Kubernetes keeps."""


def webhook_configuration(
    preflight: PreflightConfiguration, target: WebhookTarget, settings: PreflightSettings
) -> Configuration:
    """The configuration as it is applied; without a webhook where no namespace gets checks."""
    excluded = preflight.excluded(target.namespace)
    covered = [name for name in dict.fromkeys(preflight.namespaces) if preflight.covers(name, target.namespace)]
    hooks = list(_hooks(preflight, covered, excluded, target, settings)) if covered and preflight.checks else []
    return MUTATING, configuration(NAME, hooks)


def _hooks(
    preflight: PreflightConfiguration,
    covered: list[str],
    excluded: Iterable[str],
    target: WebhookTarget,
    settings: PreflightSettings,
) -> Iterator[dict[str, Any]]:
    selected = [
        {"key": NAMESPACE_NAME, "operator": "In", "values": covered},
        {"key": NAMESPACE_NAME, "operator": "NotIn", "values": list(excluded)},
    ]
    common = {
        "failurePolicy": preflight.webhook.failure_policy,
        "namespaceSelector": {"matchExpressions": selected},
    }
    yield {
        **webhook(HOOK, target, PODS, ["CREATE"], MUTATE_PATH, settings),
        **common,
        "reinvocationPolicy": "IfNeeded",
        "matchConditions": [{"name": "may-use-gpus", "expression": _may_use_gpus(preflight)}],
    }
    later = webhook(EPHEMERAL_HOOK, target, PODS, ["UPDATE"], MUTATE_PATH, settings) | common
    later["rules"][0]["resources"] = [f"{PODS.plural}/{EPHEMERAL_PLURAL}"]
    condition = f"has(object.spec.{EPHEMERAL}) && {_has_reserved(f'object.spec.{EPHEMERAL}')}"
    yield later | {"matchConditions": [{"name": "has-a-name-of-checks", "expression": condition}]}
    changes = {"matchConditions": [{"name": "changes-an-image-of-checks", "expression": _CHANGES_IMAGES}]}
    yield webhook(IMAGES_HOOK, target, PODS, ["UPDATE"], MUTATE_PATH, settings) | common | changes


def _may_use_gpus(preflight: PreflightConfiguration) -> str:
    """In CEL: whether a pod requests GPUs or a claim that may be about some, or has a mark of ours."""
    names = preflight.gpu_detection.resources
    named = [f"has(object.spec.{kind}) && {_has_reserved(f'object.spec.{kind}')}" for kind in _LISTS]
    marks = [_has("labels", LABEL_PREFLIGHT), *(_has("annotations", name) for name in OWN_ANNOTATIONS)]
    containers = (
        [f"has(object.spec.{kind}) && {_requests(f'object.spec.{kind}', names)}" for kind in _LISTS] if names else []
    )
    claims = ["has(object.spec.resourceClaims)"] if preflight.gpu_detection.device_classes else []
    return " || ".join(f"({one})" for one in [*containers, *claims, *marks, *named])


_LISTS: Final = ("containers", "initContainers")

_CHANGES_IMAGES: Final = (
    f"has(object.spec.initContainers) && object.spec.initContainers.exists(c, c.name.startsWith('{CHECK_PREFIX}') && "
    "!(has(oldObject.spec.initContainers) && "
    "oldObject.spec.initContainers.exists(o, o.name == c.name && o.image == c.image)))"
)
"""In CEL: whether a check of a pod gets another image, the one field of init containers that an update may change."""


def _has_reserved(containers: str) -> str:
    return f"{containers}.exists(c, c.name.startsWith('{CHECK_PREFIX}'))"


def _requests(containers: str, names: Iterable[str]) -> str:
    keys = " || ".join(map(_fits, names))
    found = " || ".join(
        f"(has(c.resources.{kind}) && c.resources.{kind}.exists(k, {keys}))" for kind in ("limits", "requests")
    )
    return f"{containers}.exists(c, has(c.resources) && ({found}))"


def _fits(pattern: str) -> str:
    """In CEL: whether the resource `k` fits a glob pattern, which has `*` and `?` alone."""
    if "*" not in pattern and "?" not in pattern:
        return f"k == '{pattern}'"
    expression = "".join({"*": ".*", "?": ".", ".": "[.]"}.get(one, one) for one in pattern)
    return f"k.matches('^{expression}$')"


def _has(kind: str, name: str) -> str:
    return f"has(object.metadata.{kind}) && '{name}' in object.metadata.{kind}"
