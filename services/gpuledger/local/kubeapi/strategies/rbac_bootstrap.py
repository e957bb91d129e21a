"""The bootstrap roles and bindings on which clients rely in an empty cluster."""

from collections.abc import Mapping, Sequence

from gpuledger.edge.kube.schema.causes import Object

_GROUP = "rbac.authorization.k8s.io"
_PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_PUBLIC)
_EVERYBODY = ("system:authenticated", "system:unauthenticated")


def _role(name: str, *rules: Object) -> Object:
    return {"metadata": {"name": name}, "rules": list(rules)}


def _binding(name: str, *groups: str) -> Object:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": _GROUP, "kind": "Group", "name": group} for group in groups],
    }


def _reviews(group: str, *resources: str) -> Object:
    return {"verbs": ["create"], "apiGroups": [group], "resources": list(resources)}


BOOTSTRAP: Mapping[str, Sequence[Object]] = {
    "clusterroles": (
        _role(
            "cluster-admin",
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ),
        _role("system:public-info-viewer", {"verbs": ["get"], "nonResourceURLs": list(_PUBLIC)}),
        _role("system:discovery", {"verbs": ["get"], "nonResourceURLs": list(_DISCOVERY)}),
        _role(
            "system:basic-user",
            _reviews("authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
            _reviews("authentication.k8s.io", "selfsubjectreviews"),
        ),
    ),
    "clusterrolebindings": (
        _binding("cluster-admin", "system:masters"),
        _binding("system:public-info-viewer", *_EVERYBODY),
        _binding("system:discovery", "system:authenticated"),
        _binding("system:basic-user", "system:authenticated"),
    ),
}
"""Cluster roles and bindings; a stored role of the same name takes its place."""
