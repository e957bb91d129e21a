"""What the chart lets people do: Deckhouse's roles, and what it adds to Kubernetes' own `view`, `edit` and `admin`."""

from functools import cache
from typing import NamedTuple

import pytest

from gpuledger.api.kinds import GPU_GROUP, MACHINE_CONFIG_GROUP, RESOURCE_SLICE_STATUSES
from gpuledger.local.kubeapi.strategies import rbac
from support.chart import ROLES_OF_PEOPLE, WITH_SECRET, Object, needs_helm, render

pytestmark = needs_helm

ACCESS_LEVEL = "user-authz.deckhouse.io/access-level"
AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
USER, EDITOR, CLUSTER_ADMIN, *_, BREAKS_GLASS = ROLES_OF_PEOPLE
LEVELS = {USER: "User", EDITOR: "Editor", CLUSTER_ADMIN: "ClusterAdmin"}
AGGREGATED = ("view", "edit", "admin")
TEAM = "team-a"

STATUSES = f"{RESOURCE_SLICE_STATUSES.group}/{RESOURCE_SLICE_STATUSES.plural}"
CONFIG_POOLS = f"{MACHINE_CONFIG_GROUP}/machineconfigpools"
CONFIGS = tuple(f"{MACHINE_CONFIG_GROUP}/{one}" for one in ("machineconfigs", "renderedmachineconfigs"))
READ = ("get", "list", "watch")
CHANGE = ("update", "patch")
WRITE = ("create", *CHANGE, "delete", "deletecollection")
VERBS = (*READ, *WRITE)
SEES: dict[str, tuple[str, ...]] = {"gpupools": READ, "clustergpupools": READ, STATUSES: READ, CONFIG_POOLS: READ}
RIGHTS: dict[str, dict[str, tuple[str, ...]]] = {
    USER: SEES,
    EDITOR: SEES | {"gpupools": VERBS, "gpudevices": (*READ, *CHANGE)},
    CLUSTER_ADMIN: SEES
    | dict.fromkeys(("gpupools", "clustergpupools"), VERBS)
    | dict.fromkeys(("gpudevices", "gpunodestates"), (*READ, *CHANGE, "delete")),
    BREAKS_GLASS: dict.fromkeys(("gpudevices", "gpunodestates"), VERBS)
    | dict.fromkeys(("gpudevices:status", "gpunodestates:status"), ("get", *CHANGE)),
    "view": SEES,
    "edit": SEES | {"gpupools": VERBS},
    "admin": SEES | {"gpupools": VERBS},
}
PRODUCTS = ("gpudevices", "gpunodestates", "gpudevices:status", "gpunodestates:status")
RESOURCES = ("gpupools", "clustergpupools", *PRODUCTS, STATUSES, CONFIG_POOLS, *CONFIGS)


class Binding(NamedTuple):
    """How a role is bound to alice: in the whole cluster, or in her team's namespace."""

    kind: str
    namespace: str = ""


EVERYWHERE, IN_TEAM = Binding("ClusterRoleBinding"), Binding("RoleBinding", TEAM)


@cache
def roles() -> list[Object]:
    """The chart's roles for people, and Kubernetes' own as its controller aggregates them."""
    ours = [one for one in render(WITH_SECRET).objects if one["metadata"]["name"] in ROLES_OF_PEOPLE]
    return [*ours, *(aggregated(name, ours) for name in AGGREGATED)]


def aggregated(name: str, ours: list[Object]) -> Object:
    chosen = [one for one in ours if one["metadata"]["labels"].get(f"{AGGREGATE}{name}") == "true"]
    return {"metadata": {"name": name}, "rules": [rule for one in chosen for rule in one["rules"]]}


def may(role: str, verb: str, resource: str, binding: Binding, namespace: str = "") -> bool:
    """Whether alice may do this in a namespace, or without one in the whole cluster; `:` precedes a subresource."""
    group, _, plural = resource.rpartition("/")
    plural, _, subresource = plural.partition(":")
    bound = {
        "metadata": {"name": "alice", "namespace": binding.namespace},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": "alice"}],
    }
    policies = {"clusterroles": roles(), f"{binding.kind.lower()}s": [bound]}
    attributes = {"verb": verb, "group": group or GPU_GROUP, "resource": plural, "namespace": namespace}
    attributes |= {"subresource": subresource}
    return rbac.allowed("alice", [], attributes, policies)[0]


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("role", RIGHTS)
def test_a_role_allows_this_and_nothing_else(role: str, resource: str) -> None:
    allowed = [verb for verb in VERBS if may(role, verb, resource, EVERYWHERE)]
    assert allowed == list(RIGHTS[role].get(resource, ()))


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_an_editor_of_a_namespace_writes_its_pools_and_nothing_of_the_cluster(role: str) -> None:
    assert may(role, "create", "gpupools", IN_TEAM, TEAM)
    assert not may(role, "create", "gpupools", IN_TEAM, "team-b")
    assert not [plural for plural in RESOURCES for verb in WRITE if may(role, verb, plural, IN_TEAM)]


def test_deckhouse_grants_its_roles_by_their_level() -> None:
    levels = {
        one["metadata"]["name"]: one["metadata"].get("annotations", {}).get(ACCESS_LEVEL)
        for one in roles()[: len(ROLES_OF_PEOPLE)]
    }
    assert levels == {name: LEVELS.get(name) for name in ROLES_OF_PEOPLE}
