"""What the roles of the chart allow, compared with the requests of services: neither may have more than the other."""

from collections.abc import Iterable

from support.chart import Manifests
from support.kube_accounts import Permission


def granted(made: Manifests, *names: str) -> set[Permission]:
    """What the roles of these names allow; an empty name or namespace stands for all."""
    return {
        Permission(verb, group, resource, name, one["metadata"].get("namespace", ""))
        for one in made.objects
        if one["kind"] in {"ClusterRole", "Role"} and one["metadata"]["name"] in names
        for rule in one["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


def _allows(rule: Permission, requested: Permission) -> bool:
    same = (rule.verb, rule.group, rule.resource) == (requested.verb, requested.group, requested.resource)
    return same and rule.name in ("", requested.name) and rule.namespace in ("", requested.namespace)


def beyond(requested: Iterable[Permission], rules: set[Permission]) -> set[Permission]:
    """The requests that no rule allows."""
    return {one for one in requested if not any(_allows(rule, one) for rule in rules)}


def unused(requested: set[Permission], rules: set[Permission]) -> set[Permission]:
    """The rules that may go: without them just as many of the requests are allowed."""
    refused = beyond(requested, rules)
    return {rule for rule in rules if beyond(requested, rules - {rule}) == refused}
