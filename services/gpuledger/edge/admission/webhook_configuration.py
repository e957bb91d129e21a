"""The two webhook configurations, which tell API servers what to send to the webhooks. Pure.

Match conditions keep away what needs no check: pods without GPU resources, which start even while no webhook runs;
GPUDevices whose labels and annotations stay, or are set by the product; pools whose spec and annotations stay. A pool
can be deleted while no webhook answers, because a deletion is never denied. Members of the break-glass group change
GPUDevices unchecked; what they do is only watched. Of pods that ask for no shared devices, only a change of the
annotation with a pod's devices is looked at, and not the scheduler's own. Everything else fails closed.
"""

from typing import Any, Final

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_NODE_STATES, GPU_POOLS, PODS, Resource
from gpuledger.api.labels import POOL_RESOURCES
from gpuledger.api.sharing import NVIDIA_GPU, SharingNames
from gpuledger.edge.admission.rules.access import BREAK_GLASS, product_group
from gpuledger.edge.admission.rules.decide import BINDINGS
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.edge.webhooks.configuration import (
    MUTATING,
    VALIDATING,
    Configuration,
    WebhookTarget,
    configuration,
    webhook,
)
from gpuledger.edge.webhooks.settings import WebhookAddress

NAME: Final = "gpu-control-plane"
CONFIGURATIONS: Final = ((MUTATING, NAME), (VALIDATING, NAME))
"""Kinds and names of both."""

POOL_KINDS: Final = (GPU_POOLS, CLUSTER_GPU_POOLS)

MUTATE_PATH: Final = "/mutate"
VALIDATE_PATH: Final = "/validate"
BREAK_GLASS_PATH: Final = "/break-glass"
"""A token follows, which shows that the caller is an API server."""


def _requested(keys: str) -> str:
    """In CEL: whether a container of a new pod requests a resource `k` for which this holds."""
    requests = " || ".join(f"(has(c.resources.{kind}) && c.resources.{kind}.exists(k, {keys}))" for kind in _KINDS)
    found = (f"{one}.exists(c, has(c.resources) && ({requests}))" for one in _CONTAINERS)
    plain, init = found
    return f"{plain} || (has({_CONTAINERS[1]}) && {init})"


_KINDS: Final = ("limits", "requests")
_CONTAINERS: Final = ("object.spec.containers", "object.spec.initContainers")

USES_GPUS: Final = _requested(" || ".join(f"k.startsWith('{prefix}')" for prefix in POOL_RESOURCES))
"""In CEL: whether a new pod requests units of a pool, validly or not."""


def uses_shares(names: SharingNames) -> str:
    """In CEL: whether a new pod asks for shared devices, validly or not."""
    ours = _requested(f"k.startsWith('{names.domain}/')")
    if names.scheduler is None:
        return ours
    is_theirs = f"has(object.spec.schedulerName) && object.spec.schedulerName == '{names.scheduler}'"
    whole = _requested(f"k == '{NVIDIA_GPU}'")
    return f"{ours} || ({is_theirs} && ({whole}))"


def _annotation(obj: str, key: str) -> str:
    annotations = f"{obj}.metadata.annotations"
    return f"(has({annotations}) && '{key}' in {annotations} ? {annotations}['{key}'] : '')"


def _changes(name: str) -> str:
    new, old = (f"(has({one}.metadata.{name}) ? {one}.metadata.{name} : {{}})" for one in ("object", "oldObject"))
    return f"{new} != {old}"


CHANGES_MARKS: Final = f"{_changes('labels')} || {_changes('annotations')}"
"""In CEL: whether labels or annotations change."""

CHANGES_POOL: Final = (
    f"oldObject == null || {_changes('annotations')} || "
    "(has(object.spec) ? object.spec : {}) != (has(oldObject.spec) ? oldObject.spec : {})"
)
"""In CEL: whether a pool is new, or its spec or annotations change."""


def is_by_others(home: str) -> str:
    """In CEL: whether the request is not by the product's own accounts, which must go on without an answer."""
    return f"!(has(request.userInfo.groups) && '{product_group(home)}' in request.userInfo.groups)"


BREAKS_GLASS: Final = f"has(request.userInfo.groups) && '{BREAK_GLASS}' in request.userInfo.groups"
"""In CEL: whether the request is by a member of the break-glass group."""


def allocation_by_others(names: SharingNames, home: str) -> str:
    """In CEL: whether the annotation with a pod's devices is new, changed or removed, and not by who gives them out.

    A Binding may bring the annotation along. It is one condition, since each costs an API server time with every write
    to a pod.
    """
    new, old = (_annotation(one, names.allocated) for one in ("object", "oldObject"))
    changes = f"{new} != (oldObject == null ? '' : {old})"
    others = is_by_others(home) if names.account is None else f"request.userInfo.username != '{names.account}'"
    return f"{changes} && {others}"


def configurations(
    settings: AdmissionSettings, address: WebhookAddress, bundle: bytes, token: str
) -> list[Configuration]:
    """Both configurations, as they are applied: `bundle` has the authorities to trust, `token` is the callers'."""
    target = WebhookTarget(settings.namespace, address, bundle)
    pods = {"matchConditions": [{"name": "uses-gpus", "expression": USES_GPUS}]}
    changes = {"matchConditions": [{"name": "changes-pool", "expression": CHANGES_POOL}]}
    marks = {
        "matchConditions": [
            {"name": "is-by-others", "expression": is_by_others(settings.namespace)},
            {"name": "breaks-no-glass", "expression": f"!({BREAKS_GLASS})"},
            {"name": "changes-marks", "expression": CHANGES_MARKS},
        ]
    }
    hint = _hook(settings, target, PODS, ["CREATE"], MUTATE_PATH) | pods | {"reinvocationPolicy": "IfNeeded"}
    checks = [
        _hook(settings, target, PODS, ["CREATE"], VALIDATE_PATH) | pods,
        *(_hook(settings, target, kind, ["CREATE", "UPDATE"], VALIDATE_PATH) | changes for kind in POOL_KINDS),
        *(_deletion_hook(settings, target, kind) for kind in POOL_KINDS),
        _hook(settings, target, GPU_DEVICES, ["UPDATE"], VALIDATE_PATH) | marks,
        _break_glass_hook(settings, target, token),
        _sharing_hook(settings, target, VALIDATE_PATH),
        _allocation_hook(settings, target),
    ]
    rewrite = _sharing_hook(settings, target, MUTATE_PATH) | {"reinvocationPolicy": "IfNeeded"}
    return [(MUTATING, configuration(NAME, [hint, rewrite])), (VALIDATING, configuration(NAME, checks))]


def _sharing_hook(settings: AdmissionSettings, target: WebhookTarget, path: str) -> dict[str, Any]:
    """About new pods that ask for shared devices."""
    shares = {"matchConditions": [{"name": "uses-shares", "expression": uses_shares(settings.sharing)}]}
    return _hook(settings, target, PODS, ["CREATE"], path) | shares | {"name": f"shares.{NAME}.deckhouse.io"}


def _allocation_hook(settings: AdmissionSettings, target: WebhookTarget) -> dict[str, Any]:
    """About the annotation with a pod's devices, by whatever way it gets there."""
    hook = _hook(settings, target, PODS, ["CREATE", "UPDATE"], VALIDATE_PATH)
    hook["rules"][0]["resources"] = [PODS.plural, f"{PODS.plural}/status", f"{PODS.plural}/binding", BINDINGS]
    condition = allocation_by_others(settings.sharing, settings.namespace)
    return hook | {
        "name": f"allocations.{NAME}.deckhouse.io",
        "matchConditions": [{"name": "allocation-by-others", "expression": condition}],
    }


def _deletion_hook(settings: AdmissionSettings, target: WebhookTarget, resource: Resource) -> dict[str, Any]:
    name = f"{resource.plural}-deletion.{NAME}.deckhouse.io"
    return _hook(settings, target, resource, ["DELETE"], VALIDATE_PATH) | {"name": name, "failurePolicy": "Ignore"}


def _break_glass_hook(settings: AdmissionSettings, target: WebhookTarget, token: str) -> dict[str, Any]:
    """Sees what the group's members write, of both kinds and their statuses, and never stands in their way."""
    hook = _hook(settings, target, GPU_DEVICES, ["CREATE", "UPDATE", "DELETE"], f"{BREAK_GLASS_PATH}/{token}")
    plurals = (GPU_DEVICES.plural, GPU_NODE_STATES.plural)
    hook["rules"][0]["resources"] = [name for plural in plurals for name in (plural, f"{plural}/status")]
    return hook | {
        "name": f"break-glass.{NAME}.deckhouse.io",
        "failurePolicy": "Ignore",
        "sideEffects": "NoneOnDryRun",
        "matchConditions": [{"name": "breaks-glass", "expression": BREAKS_GLASS}],
    }


def _hook(
    settings: AdmissionSettings, target: WebhookTarget, resource: Resource, operations: list[str], path: str
) -> dict[str, Any]:
    return webhook(f"{resource.plural}.{NAME}.deckhouse.io", target, resource, operations, path, settings)
