"""How API servers are told to ask the webhooks: the two webhook configurations. Pure.

Whether a pod asks for units of a pool is told by the API server itself, through a match condition: a pod without GPU
resources never reaches a webhook, and is created even when none runs. Nor does a GPUDevice whose labels and annotations
stay as they are or are set by the product, nor a pool whose spec and annotations stay. A pool can be deleted though
nobody answers, because that is only ever warned of. Everything else fails closed.
"""

import base64
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_POOLS, MANAGED_BY, PODS, Resource
from gpuledger.api.labels import POOL_RESOURCES
from gpuledger.edge.admission.rules.access import product_group
from gpuledger.edge.admission.settings import AdmissionSettings, Reached

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


def _asks_for_units(containers: str) -> str:
    keys = " || ".join(f"k.startsWith('{prefix}')" for prefix in POOL_RESOURCES)
    told = " || ".join(f"(has(c.resources.{kind}) && c.resources.{kind}.exists(k, {keys}))" for kind in _KINDS)
    return f"{containers}.exists(c, has(c.resources) && ({told}))"


_KINDS = ("limits", "requests")

USES_GPUS: Final = (
    f"{_asks_for_units('object.spec.containers')} || "
    f"(has(object.spec.initContainers) && {_asks_for_units('object.spec.initContainers')})"
)
"""In CEL: whether a new pod asks for units of a pool, rightly or not."""


def _changes(name: str) -> str:
    new, old = (f"(has({one}.metadata.{name}) ? {one}.metadata.{name} : {{}})" for one in ("object", "oldObject"))
    return f"{new} != {old}"


CHANGES_MARKS: Final = f"{_changes('labels')} || {_changes('annotations')}"
"""In CEL: whether labels or annotations are others than before."""

CHANGES_POOL: Final = (
    f"oldObject == null || {_changes('annotations')} || "
    "(has(object.spec) ? object.spec : {}) != (has(oldObject.spec) ? oldObject.spec : {})"
)
"""In CEL: whether a pool is new, or its spec or annotations are others than before."""


def is_by_others(home: str) -> str:
    """In CEL: whether somebody else asks than the product's own accounts, who need no answer of ours to go on."""
    return f"!(has(request.userInfo.groups) && '{product_group(home)}' in request.userInfo.groups)"


class Place(NamedTuple):
    """Where the webhooks are, and by which authorities they are known (PEM in base64)."""

    namespace: str
    reached: Reached
    bundle: str

    def client_config(self, path: str) -> dict[str, Any]:
        """As a webhook has it."""
        reached = self.reached
        if reached.url is not None:
            return {"url": f"{reached.url}{path}", "caBundle": self.bundle}
        service = {"name": reached.service, "namespace": self.namespace, "path": path, "port": reached.port}
        return {"service": service, "caBundle": self.bundle}


def configurations(
    settings: AdmissionSettings, reached: Reached, bundle: bytes
) -> list[tuple[Resource, dict[str, Any]]]:
    """Both configurations, as they are applied; `bundle` is the authorities that are trusted."""
    place = Place(settings.namespace, reached, base64.b64encode(bundle).decode())
    pods = {"matchConditions": [{"name": "uses-gpus", "expression": USES_GPUS}]}
    changes = {"matchConditions": [{"name": "changes-pool", "expression": CHANGES_POOL}]}
    marks = {
        "matchConditions": [
            {"name": "is-by-others", "expression": is_by_others(settings.namespace)},
            {"name": "changes-marks", "expression": CHANGES_MARKS},
        ]
    }
    hint = _hook(settings, place, PODS, ["CREATE"], MUTATE_PATH) | pods | {"reinvocationPolicy": "IfNeeded"}
    checks = [
        _hook(settings, place, PODS, ["CREATE"], VALIDATE_PATH) | pods,
        *(_hook(settings, place, kind, ["CREATE", "UPDATE"], VALIDATE_PATH) | changes for kind in POOL_KINDS),
        *(_deletion_hook(settings, place, kind) for kind in POOL_KINDS),
        _hook(settings, place, GPU_DEVICES, ["UPDATE"], VALIDATE_PATH) | marks,
    ]
    metadata = {"name": NAME, "labels": {"app.kubernetes.io/managed-by": MANAGED_BY}}
    return [
        (MUTATING, {"metadata": metadata, "webhooks": [hint]}),
        (VALIDATING, {"metadata": metadata, "webhooks": checks}),
    ]


def names_of(namespace: str, reached: Reached) -> tuple[str, ...]:
    """The host names and addresses by which an API server knows the webhooks."""
    if reached.url is None:
        return (f"{reached.service}.{namespace}.svc",)
    return (urlsplit(reached.url).hostname or "",)


def _deletion_hook(settings: AdmissionSettings, place: Place, resource: Resource) -> dict[str, Any]:
    name = f"{resource.plural}-deletion.{NAME}.deckhouse.io"
    return _hook(settings, place, resource, ["DELETE"], VALIDATE_PATH) | {"name": name, "failurePolicy": "Ignore"}


def _hook(
    settings: AdmissionSettings, place: "Place", resource: Resource, operations: list[str], path: str
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
        "clientConfig": place.client_config(path),
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": settings.webhook_timeout_s,
    }
