"""What the webhook configurations of all services have in common: how API servers reach webhooks. Pure."""

import base64
from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from gpuledger.api.kinds import MANAGED_BY, Resource
from gpuledger.edge.webhooks.settings import ServingSettings, WebhookAddress

MUTATING: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"
)
VALIDATING: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"
)

Configuration = tuple[Resource, dict[str, Any]]
"""A webhook configuration as it is applied, and its kind."""


class WebhookTarget(NamedTuple):
    """The address of the webhooks, and the authorities to trust (PEM)."""

    namespace: str
    address: WebhookAddress
    bundle: bytes

    def client_config(self, path: str) -> dict[str, Any]:
        """As a webhook has it."""
        address, bundle = self.address, base64.b64encode(self.bundle).decode()
        if address.url is not None:
            return {"url": f"{address.url}{path}", "caBundle": bundle}
        service = {"name": address.service, "namespace": self.namespace, "path": path, "port": address.port}
        return {"service": service, "caBundle": bundle}


def webhook(
    name: str, target: WebhookTarget, resource: Resource, operations: list[str], path: str, settings: ServingSettings
) -> dict[str, Any]:
    """A webhook about one resource, which fails closed and has no side effects."""
    rule = {
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "resources": [resource.plural],
        "operations": operations,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
    }
    return {
        "name": name,
        "rules": [rule],
        "clientConfig": target.client_config(path),
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": settings.webhook_timeout_s,
    }


def configuration(name: str, webhooks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """A webhook configuration of this product."""
    metadata = {"name": name, "labels": {"app.kubernetes.io/managed-by": MANAGED_BY}}
    return {"metadata": metadata, "webhooks": list(webhooks)}


def server_names(namespace: str, address: WebhookAddress) -> tuple[str, ...]:
    """The host names and addresses at which an API server reaches the webhooks."""
    if address.url is None:
        return (f"{address.service}.{namespace}.svc",)
    return (urlsplit(address.url).hostname or "",)
