"""Discovery tells clients what they may ask for."""

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.builtin import BUILTIN
from gpuledger.local.kubeapi.discovery import Discovery, version_document, version_priority
from gpuledger.local.kubeapi.resources import ServedResource, Subresource

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def _custom(group: str, version: str) -> ServedResource:
    status = Subresource("status", ("get", "patch", "update"), "Thing")
    return ServedResource(
        group, version, "Thing", "things", "thing", True, ("th",), ("all",), subresources=(status,), is_custom=True
    )


RESOURCES = (_custom("z.io", "v1alpha1"), *BUILTIN, _custom("z.io", "v1"), _custom("a.io", "v1beta1"))
DISCOVERY = Discovery(RESOURCES)


def _listed(group: str, version: str) -> Object:
    found = DISCOVERY.resource_list(group, version)
    assert found is not None
    return found


def test_groups_are_in_order_and_prefer_stable_versions() -> None:
    groups = DISCOVERY.apis()["groups"]
    names = [group["name"] for group in groups]
    assert names[0] == "apps"
    assert names[-2:] == ["a.io", "z.io"]
    assert [one["version"] for one in groups[-1]["versions"]] == ["v1", "v1alpha1"]
    assert groups[-1]["preferredVersion"] == {"groupVersion": "z.io/v1", "version": "v1"}


def test_versions_are_ranked_by_stability() -> None:
    order = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    assert sorted({*order}, key=version_priority, reverse=True) == order


def test_a_group_version_lists_resources_and_subresources() -> None:
    document = _listed("z.io", "v1")
    assert (document["apiVersion"], document["groupVersion"]) == ("v1", "z.io/v1")
    assert [one["name"] for one in document["resources"]] == ["things", "things/status"]
    assert document["resources"][0]["shortNames"] == ["th"]
    assert document["resources"][1]["singularName"] == ""


def test_the_core_group_has_its_own_root() -> None:
    assert DISCOVERY.api()["versions"] == ["v1"]
    document = _listed("", "v1")
    assert "apiVersion" not in document
    eviction = next(one for one in document["resources"] if one["name"] == "pods/eviction")
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")


def test_what_is_not_served_is_not_found() -> None:
    assert DISCOVERY.group("nope.io") is None
    assert DISCOVERY.resource_list("z.io", "v9") is None
    assert DISCOVERY.resource_list("", "v2") is None


def test_aggregated_discovery() -> None:
    document = DISCOVERY.aggregated(core=False)
    assert document["apiVersion"] == "apidiscovery.k8s.io/v2"
    group = document["items"][-1]
    assert group["metadata"] == {"name": "z.io"}
    thing = group["versions"][0]["resources"][0]
    assert thing["responseKind"] == {"group": "z.io", "version": "v1", "kind": "Thing"}
    assert thing["scope"] == "Namespaced"
    assert [one["subresource"] for one in thing["subresources"]] == ["status"]
    core = DISCOVERY.aggregated(core=True)
    assert core["items"][0]["versions"][0]["version"] == "v1"


def test_the_version() -> None:
    document = version_document()
    assert (document["major"], document["minor"]) == ("1", "36")
    assert document["gitVersion"].startswith("v1.36.")


def test_documents_are_found_by_path() -> None:
    found = DISCOVERY.find("/apis", V2)
    assert found is not None
    assert (found[0]["kind"], found[1]) == ("APIGroupDiscoveryList", V2)
    legacy = DISCOVERY.find("/apis", "application/json")
    assert legacy is not None
    assert legacy[0]["kind"] == "APIGroupList"
    assert DISCOVERY.find("/apis/z.io/v1", "") == (_listed("z.io", "v1"), "application/json")
    assert DISCOVERY.find("/apis/nope.io", "") is None
