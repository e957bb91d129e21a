"""RBAC: defaults of roles and bindings, and the decision whether they allow a request.

Only stored objects and the few bootstrap roles count. RBAC has no rules that deny.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid, required
from gpuledger.local.kubeapi.metadata import path_problem
from gpuledger.local.kubeapi.resources import Strategy
from gpuledger.local.kubeapi.strategies.core_shared import fill, part_of
from gpuledger.local.kubeapi.strategies.rbac_bootstrap import BOOTSTRAP

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
SERVICE_ACCOUNT = "system:serviceaccount"

Attributes = Mapping[str, str]
"""The attributes of a request: verb, and either path or group, resource, subresource, name and namespace."""

Policies = Mapping[str, Iterable[Object]]
"""Objects by plural: roles, clusterroles, rolebindings, clusterrolebindings."""


class RoleStrategy(Strategy):
    """Roles and cluster roles."""

    creates_on_update = True
    has_generation = False

    def default(self, obj: Object) -> None:
        """Set `rules` to null if there are none."""
        obj.setdefault("rules", None)

    def validate_name(self, name: str) -> str | None:
        """Any segment of a path."""
        return path_problem(name)


class RoleBindingStrategy(RoleStrategy):
    """Bindings of roles and of cluster roles. The role that they give never changes."""

    def default(self, obj: Object) -> None:
        """Fill in the group of references."""
        for reference in (part_of(obj, "roleRef"), *(obj.get("subjects") or ())):
            if reference.get("kind") != "ServiceAccount":
                fill(reference, {"apiGroup": GROUP})

    def validate(self, obj: Object) -> list[Cause]:
        """A binding names a role."""
        role = obj["roleRef"]
        return [required(f"roleRef.{name}") for name in ("kind", "name") if not role.get(name)]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """The role is fixed."""
        changed = obj.get("roleRef") != old.get("roleRef")
        return [*self.validate(obj), *([invalid("roleRef", obj.get("roleRef"), "cannot change roleRef")] * changed)]


def allowed(user: str, groups: Iterable[str], attributes: Attributes, objects: Policies) -> tuple[bool, str]:
    """Whether RBAC allows a request, and by which binding; `system:masters` may do everything."""
    among = frozenset(groups)
    if MASTERS in among:
        return True, ""
    for rule, reason in _rules(user, among, attributes.get("namespace", ""), objects):
        if _permits(rule, attributes):
            return True, f"RBAC: allowed by {reason}"
    return False, ""


def rules_for(user: str, groups: Iterable[str], namespace: str, objects: Policies) -> list[Object]:
    """Every rule that applies to a user in a namespace."""
    among = frozenset(groups)
    everything: list[Object] = [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]
    found = [rule for rule, _ in _rules(user, among, namespace, objects)]
    return [*everything, *found] if MASTERS in among else found


def _rules(user: str, groups: frozenset[str], namespace: str, objects: Policies) -> Iterator[tuple[Object, str]]:
    everywhere = [*objects.get("clusterrolebindings", ()), *BOOTSTRAP["clusterrolebindings"]]
    here = [one for one in objects.get("rolebindings", ()) if one["metadata"].get("namespace") == namespace]
    for kind, bindings in (("ClusterRoleBinding", everywhere), ("RoleBinding", here if namespace else [])):
        for binding in bindings:
            subject = _subject_of(binding, user, groups)
            if subject is None:
                continue
            role, meta = binding["roleRef"], binding["metadata"]
            name = f"{meta['name']}/{meta['namespace']}" if kind == "RoleBinding" else meta["name"]
            reason = f'{kind} "{name}" of {role["kind"]} "{role["name"]}" to {_shown(subject, meta)}'
            for rule in _rules_of(role, meta.get("namespace", ""), objects):
                yield rule, reason


def _rules_of(reference: Object, namespace: str, objects: Policies) -> list[Object]:
    if reference["kind"] == "Role":
        roles = (one for one in objects.get("roles", ()) if one["metadata"].get("namespace") == namespace)
        role = next((one for one in roles if _name(one) == reference["name"]), None)
        return (role or {}).get("rules") or []
    cluster_roles = [*objects.get("clusterroles", ()), *BOOTSTRAP["clusterroles"]]
    role = next((one for one in cluster_roles if _name(one) == reference["name"]), None)
    return (role or {}).get("rules") or []


def _subject_of(binding: Object, user: str, groups: frozenset[str]) -> Object | None:
    home = binding["metadata"].get("namespace", "")
    for subject in binding.get("subjects") or ():
        name, namespace = subject.get("name"), subject.get("namespace") or home
        match subject.get("kind"):
            case "User" if name == user:
                return dict(subject)
            case "Group" if name in groups:
                return dict(subject)
            case "ServiceAccount" if namespace and user == f"{SERVICE_ACCOUNT}:{namespace}:{name}":
                return dict(subject)
    return None


def _shown(subject: Object, meta: Object) -> str:
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or meta.get('namespace', '')}"
    return f'{subject["kind"]} "{name}"'


def _permits(rule: Object, attributes: Attributes) -> bool:
    if not _has(rule.get("verbs"), attributes.get("verb", "")):
        return False
    if "path" in attributes:
        return any(_path_matches(url, attributes["path"]) for url in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames")
    return (
        _has(rule.get("apiGroups"), attributes.get("group", ""))
        and any(_resource_matches(one, attributes) for one in rule.get("resources") or ())
        and (not names or attributes.get("name", "") in names)
    )


def _has(values: Sequence[str] | None, value: str) -> bool:
    return "*" in (values or ()) or value in (values or ())


def _resource_matches(pattern: str, attributes: Attributes) -> bool:
    resource, subresource = attributes.get("resource", ""), attributes.get("subresource", "")
    full = f"{resource}/{subresource}" if subresource else resource
    return pattern in {"*", full} or (bool(subresource) and pattern == f"*/{subresource}")


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in {"*", path} or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def _name(obj: Object) -> str:
    name: str = obj["metadata"]["name"]
    return name
