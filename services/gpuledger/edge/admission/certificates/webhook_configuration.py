"""The two webhook configurations, which tell API servers what to send to the webhooks. Pure.

Match conditions keep away what needs no check: pods without GPU resources, which start even while no webhook runs;
GPUDevices whose labels and annotations stay, or are set by the product; pools whose spec and annotations stay. A pool
can be deleted while no webhook answers, because a deletion is never denied. Members of the break-glass group change
GPUDevices unchecked; what they do is only watched. Everything else fails closed.
"""

import base64
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_NODE_STATES, GPU_POOLS, MANAGED_BY, PODS, Resource
from gpuledger.api.labels import POOL_RESOURCES
from gpuledger.edge.admission.rules.access import BREAK_GLASS, product_group
from gpuledger.edge.admission.settings import AdmissionSettings, WebhookAddress

NAME: Final = "gpu-control-plane"
MUTATING: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"
)
VALIDATING: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"
)

POOL_KINDS: Final = (GPU_POOLS, CLUSTER_GPU_POOLS)

MUTATE_PATH: Final = "/mutate"
VALIDATE_PATH: Final = "/validate"
BREAK_GLASS_PATH: Final = "/break-glass"
"""A token follows, which shows that the caller is an API server."""


def _requests_units(containers: str) -> str:
    keys = " || ".join(f"k.startsWith('{prefix}')" for prefix in POOL_RESOURCES)
    requests = " || ".join(f"(has(c.resources.{kind}) && c.resources.{kind}.exists(k, {keys}))" for kind in _KINDS)
    return f"{containers}.exists(c, has(c.resources) && ({requests}))"


_KINDS = ("limits", "requests")

USES_GPUS: Final = (
    f"{_requests_units('object.spec.containers')} || "
    f"(has(object.spec.initContainers) && {_requests_units('object.spec.initContainers')})"
)
"""In CEL: whether a new pod requests units of a pool, validly or not."""


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


class WebhookTarget(NamedTuple):
    """The address of the webhooks, and the authorities to trust (PEM in base64)."""

    namespace: str
    address: WebhookAddress
    bundle: str

    def client_config(self, path: str) -> dict[str, Any]:
        """As a webhook has it."""
        address = self.address
        if address.url is not None:
            return {"url": f"{address.url}{path}", "caBundle": self.bundle}
        service = {"name": address.service, "namespace": self.namespace, "path": path, "port": address.port}
        return {"service": service, "caBundle": self.bundle}


def configurations(
    settings: AdmissionSettings, address: WebhookAddress, bundle: bytes, token: str
) -> list[tuple[Resource, dict[str, Any]]]:
    """Both configurations, as they are applied: `bundle` has the authorities to trust, `token` is the callers'."""
    target = WebhookTarget(settings.namespace, address, base64.b64encode(bundle).decode())
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
    ]
    metadata = {"name": NAME, "labels": {"app.kubernetes.io/managed-by": MANAGED_BY}}
    return [
        (MUTATING, {"metadata": metadata, "webhooks": [hint]}),
        (VALIDATING, {"metadata": metadata, "webhooks": checks}),
    ]


def server_names(namespace: str, address: WebhookAddress) -> tuple[str, ...]:
    """The host names and addresses at which an API server reaches the webhooks."""
    if address.url is None:
        return (f"{address.service}.{namespace}.svc",)
    return (urlsplit(address.url).hostname or "",)


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
    rule = {
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "resources": [resource.plural],
        "operations": operations,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
    }
    return {
        "name": f"{resource.plural}.{NAME}.deckhouse.io",
        "rules": [rule],
        "clientConfig": target.client_config(path),
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": settings.webhook_timeout_s,
    }
