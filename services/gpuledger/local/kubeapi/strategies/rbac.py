"""RBAC: which roles and bindings are valid, and what they allow.

`allowed` decides from the objects that it is given and the few that every cluster is born with; it never denies, as
RBAC has no rules for that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid, not_supported, required
from gpuledger.edge.kube.schema.object_names import dns_subdomain_problem
from gpuledger.local.kubeapi.resources import Column, Strategy
from gpuledger.local.kubeapi.strategies.core_shared import drop_empty, selector_causes, selects
from gpuledger.local.kubeapi.strategies.rbac_bootstrap import BOOTSTRAP

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
SERVICE_ACCOUNT = "system:serviceaccount"

Attributes = Mapping[str, str]
"""What is asked: verb, and either path or group, resource, subresource, name and namespace; absent ones are empty."""

Policies = Mapping[str, Iterable[Object]]
"""Objects by plural: roles, clusterroles, rolebindings, clusterrolebindings."""


class RoleStrategy(Strategy):
    """Roles."""

    creates_on_update = True
    has_generation = False
    is_namespaced = True

    def default(self, obj: Object) -> None:
        """A role without rules says so."""
        obj.setdefault("rules", None)
        for rule in obj["rules"] or ():
            drop_empty(rule)

    def validate(self, obj: Object) -> list[Cause]:
        """Rules say what may be done to what."""
        rules = enumerate(obj.get("rules") or ())
        return [
            cause
            for index, rule in rules
            for cause in _rule_causes(rule, f"rules[{index}]", is_namespaced=self.is_namespaced)
        ]

    def validate_name(self, name: str) -> str | None:
        """Any segment of a path."""
        return _segment_problem(name)


class ClusterRoleStrategy(RoleStrategy):
    """Cluster roles, which may aggregate others."""

    is_namespaced = False

    def validate(self, obj: Object) -> list[Cause]:
        """Rules and aggregation."""
        return [*super().validate(obj), *_aggregation_causes(obj.get("aggregationRule"))]


class RoleBindingStrategy(Strategy):
    """Role bindings. Where they point never changes."""

    creates_on_update = True
    has_generation = False
    kinds: tuple[str, ...] = ("Role", "ClusterRole")
    is_namespaced = True

    def default(self, obj: Object) -> None:
        """References are to this group unless they say otherwise."""
        role = obj["roleRef"] = obj.get("roleRef") or {}
        role["apiGroup"] = role.get("apiGroup") or GROUP
        for subject in obj.get("subjects") or ():
            if subject.get("kind") in {"User", "Group"}:
                subject["apiGroup"] = subject.get("apiGroup") or GROUP
            if not subject.get("apiGroup"):
                subject.pop("apiGroup", None)
        if not obj.get("subjects"):
            obj.pop("subjects", None)

    def validate(self, obj: Object) -> list[Cause]:
        """A role, and whom it is given to."""
        subjects = enumerate(obj.get("subjects") or ())
        return [
            *self._role_causes(obj.get("roleRef") or {}),
            *(
                cause
                for index, subject in subjects
                for cause in _subject_causes(subject, f"subjects[{index}]", is_namespaced=self.is_namespaced)
            ),
        ]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """The role stays."""
        changed = obj.get("roleRef") != old.get("roleRef")
        return [*self.validate(obj), *([invalid("roleRef", obj.get("roleRef"), "cannot change roleRef")] * changed)]

    def validate_name(self, name: str) -> str | None:
        """Any segment of a path."""
        return _segment_problem(name)

    def columns(self) -> Sequence[Column]:
        """Which role is given."""
        return (Column("Name", format="name"), Column("Role"), Column("Created At", "date"))

    def cells(self, obj: Object, now: datetime) -> list[object]:
        """One row."""
        role, metadata = obj["roleRef"], obj["metadata"]
        return [metadata["name"], f"{role.get('kind')}/{role.get('name')}", metadata.get("creationTimestamp")]

    def _role_causes(self, role: Mapping[str, Any]) -> Iterator[Cause]:
        if role.get("apiGroup") != GROUP:
            yield not_supported("roleRef.apiGroup", role.get("apiGroup") or "", (GROUP,))
        if role.get("kind") not in self.kinds:
            yield not_supported("roleRef.kind", role.get("kind") or "", self.kinds)
        name = role.get("name") or ""
        if not name:
            yield required("roleRef.name")
        elif problem := _segment_problem(name):
            yield invalid("roleRef.name", name, problem)


class ClusterRoleBindingStrategy(RoleBindingStrategy):
    """Cluster role bindings."""

    kinds = ("ClusterRole",)
    is_namespaced = False


def allowed(user: str, groups: Iterable[str], attributes: Attributes, objects: Policies) -> tuple[bool, str]:
    """Whether RBAC objects let a user do something, and by which binding; `system:masters` need none."""
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


def aggregated(role: Object, cluster_roles: Iterable[Object]) -> list[Object]:
    """The rules of a cluster role: its own or, where it aggregates, those of the roles that it selects."""
    rule = role.get("aggregationRule")
    if not rule:
        return role.get("rules") or []
    selectors = rule.get("clusterRoleSelectors") or ()
    return [
        one
        for other in sorted(cluster_roles, key=_name)
        if other is not role and any(selects(selector, other["metadata"].get("labels")) for selector in selectors)
        for one in other.get("rules") or ()
    ]


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
    known = [*objects.get("clusterroles", ()), *BOOTSTRAP["clusterroles"]]
    role = next((one for one in known if _name(one) == reference["name"]), None)
    return aggregated(role, known) if role else []


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


def _permits(rule: Object, asked: Attributes) -> bool:
    if not _has(rule.get("verbs"), asked.get("verb", "")):
        return False
    if "path" in asked:
        return any(_path_matches(url, asked["path"]) for url in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames")
    return (
        _has(rule.get("apiGroups"), asked.get("group", ""))
        and any(_resource_matches(one, asked) for one in rule.get("resources") or ())
        and (not names or asked.get("name", "") in names)
    )


def _has(known: Sequence[str] | None, wanted: str) -> bool:
    return "*" in (known or ()) or wanted in (known or ())


def _resource_matches(pattern: str, asked: Attributes) -> bool:
    resource, subresource = asked.get("resource", ""), asked.get("subresource", "")
    full = f"{resource}/{subresource}" if subresource else resource
    return pattern in {"*", full} or (bool(subresource) and pattern == f"*/{subresource}")


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in {"*", path} or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def _rule_causes(rule: Mapping[str, Any], field: str, *, is_namespaced: bool) -> Iterator[Cause]:
    if not rule.get("verbs"):
        yield required(f"{field}.verbs", "verbs must contain at least one value")
    if urls := rule.get("nonResourceURLs"):
        if is_namespaced:
            yield invalid(f"{field}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
        if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            message = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid(f"{field}.nonResourceURLs", urls, message)
        return
    if not rule.get("apiGroups"):
        yield required(f"{field}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{field}.resources", "resource rules must supply at least one resource")


def _aggregation_causes(rule: Mapping[str, Any] | None) -> Iterator[Cause]:
    if rule is None:
        return
    selectors, field = rule.get("clusterRoleSelectors") or (), "aggregationRule.clusterRoleSelectors"
    if not selectors:
        yield required(field, "at least one clusterRoleSelector required if aggregationRule is non-nil")
    for index, selector in enumerate(selectors):
        yield from selector_causes(selector, f"{field}[{index}]")


def _subject_causes(subject: Mapping[str, Any], field: str, *, is_namespaced: bool) -> Iterator[Cause]:
    name, kind, group = subject.get("name") or "", subject.get("kind") or "", subject.get("apiGroup") or ""
    if not name:
        yield required(f"{field}.name")
    if kind == "ServiceAccount":
        if name and (problem := dns_subdomain_problem(name)):
            yield invalid(f"{field}.name", name, problem)
        if group:
            yield not_supported(f"{field}.apiGroup", group, ("",))
        if not is_namespaced and not subject.get("namespace"):
            yield required(f"{field}.namespace")
    elif kind in {"User", "Group"}:
        if not name:
            yield invalid(f"{field}.name", name, f"{kind.lower()} name cannot be empty")
        if group != GROUP:
            yield not_supported(f"{field}.apiGroup", group, (GROUP,))
    else:
        yield not_supported(f"{field}.kind", kind, ("ServiceAccount", "User", "Group"))


def _segment_problem(name: str) -> str | None:
    if name in {".", ".."}:
        return f"may not be '{name}'"
    found = next((sign for sign in "/%" if sign in name), None)
    return f"may not contain '{found}'" if found else None


def _name(obj: Object) -> str:
    name: str = obj["metadata"]["name"]
    return name
