"""Which gang a pod belongs to: the rows of every scheduler, and what users write wrongly."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.preflight import CONFIG_MAP_NAME_MAX, gang_config_map
from gpuledger.domain.preflight.gangs import Gang, GangDiscovery, GangMethod, gang_of, object_of, size_in

NATIVE, VOLCANO, KUEUE, LABELS = GangMethod
BY_LABELS = GangDiscovery((LABELS,), "example.org/gang", "example.org/gang-size")
ALL = GangDiscovery(tuple(GangMethod), "example.org/gang", "example.org/gang-size")


def pod(spec: Any = None, labels: Any = None, annotations: Any = None) -> dict[str, Any]:
    return {"metadata": {"labels": labels or {}, "annotations": annotations or {}}, "spec": spec or {}}


def found(given_pod: Any, discovery: GangDiscovery = ALL) -> tuple[str, int | None] | None:
    gang = gang_of(given_pod, discovery)
    return None if gang is None else (gang.source, gang.size)


@pytest.mark.parametrize(
    ("given_pod", "source", "size"),
    [
        (pod({"schedulingGroup": {"podGroupName": "train-0"}}), "scheduling-group/train-0", None),
        (pod({"workloadRef": {"name": "train", "podGroup": "workers"}}), "workload/train/workers", None),
        (
            pod({"workloadRef": {"name": "train", "podGroup": "workers", "podGroupReplicaKey": "1"}}),
            "workload/train/workers/1",
            None,
        ),
        (
            pod({"schedulingGroup": {"podGroupName": "new"}, "workloadRef": {"name": "old", "podGroup": "workers"}}),
            "scheduling-group/new",
            None,
        ),
        (pod(annotations={"scheduling.k8s.io/group-name": "tf-1a2b"}), "volcano/tf-1a2b", None),
        (pod(annotations={"scheduling.volcano.sh/group-name": "tf"}), "volcano/tf", None),
        (pod(annotations={"volcano.sh/pod-group": "tf"}), "volcano/tf", None),
        (pod(annotations={"scheduling.volcano.sh/pod-group": "tf"}), "volcano/tf", None),
        (
            pod(
                labels={"kueue.x-k8s.io/pod-group-name": "group"},
                annotations={"kueue.x-k8s.io/pod-group-total-count": "3"},
            ),
            "kueue-group/group",
            3,
        ),
        (pod(labels={"kueue.x-k8s.io/pod-group-name": "group"}), "kueue-group/group", None),
        (pod(labels={"kueue.x-k8s.io/workload-name": "job-train-1"}), "kueue-workload/job-train-1", None),
        (pod(annotations={"kueue.x-k8s.io/workload": "job-train-1"}), "kueue-workload/job-train-1", None),
        (pod(labels={"example.org/gang": "Run_7", "example.org/gang-size": "16"}), "label/Run_7", 16),
        (pod(labels={"example.org/gang": "Run_7", "example.org/gang-size": "many"}), "label/Run_7", None),
        (pod(labels={"example.org/gang": "lws-1"}, annotations={"example.org/gang-size": "3"}), "label/lws-1", 3),
    ],
)
def test_each_scheduler_has_its_own_sign(given_pod: Any, source: str, size: int | None) -> None:
    assert found(given_pod) == (source, size)


@pytest.mark.parametrize(
    "given_pod",
    [
        {},
        {"metadata": None, "spec": None},
        {"metadata": {"labels": ["a"], "annotations": 1}, "spec": {"schedulingGroup": "x", "workloadRef": []}},
        pod({"schedulingGroup": {"podGroupName": ""}}),
        pod({"schedulingGroup": {"podGroupName": "No/Such"}}),
        pod({"workloadRef": {"name": "train"}}),
        pod({"workloadRef": {"name": "w" * 200, "podGroup": "g" * 60}}),
        pod(annotations={"scheduling.k8s.io/group-name": "../../etc"}),
        pod(labels={"example.org/gang": "", "kueue.x-k8s.io/pod-group-name": 7}),
    ],
)
def test_what_names_no_gang_is_none(given_pod: Any) -> None:
    assert gang_of(given_pod, ALL) is None


def test_only_configured_methods_count_and_the_first_one_holds() -> None:
    both = pod({"schedulingGroup": {"podGroupName": "native"}}, annotations={"scheduling.k8s.io/group-name": "volcano"})
    assert found(both, GangDiscovery((VOLCANO,))) == ("volcano/volcano", None)
    assert found(both, GangDiscovery((VOLCANO, NATIVE))) == ("volcano/volcano", None)
    assert found(both, GangDiscovery((NATIVE, VOLCANO))) == ("scheduling-group/native", None)
    assert found(both, GangDiscovery((KUEUE,))) is None
    assert found(pod(labels={"example.org/gang": "a"}), GangDiscovery((LABELS,))) is None


@pytest.mark.parametrize("size", ["0", "-1", "4097", "9" * 40, "1.5", " 3", "³", "", None, True])
def test_a_size_that_is_none_is_left_open(size: Any) -> None:
    given_pod = pod(labels={"example.org/gang": "a", "example.org/gang-size": size})
    assert found(given_pod, BY_LABELS) == ("label/a", None)


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True)
PODS = st.one_of(
    NAMES.map(lambda name: pod({"schedulingGroup": {"podGroupName": name}})),
    st.tuples(NAMES, NAMES).map(lambda two: pod({"workloadRef": {"name": two[0], "podGroup": two[1]}})),
    NAMES.map(lambda name: pod(annotations={"volcano.sh/pod-group": name})),
    NAMES.map(lambda name: pod(labels={"kueue.x-k8s.io/pod-group-name": name})),
    NAMES.map(lambda name: pod(labels={"kueue.x-k8s.io/workload-name": name})),
    st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", fullmatch=True).map(
        lambda value: pod(labels={"example.org/gang": value})
    ),
)


def is_dns_label(name: str) -> bool:
    return (
        0 < len(name) <= 63
        and name[0].isalnum()
        and name[-1].isalnum()
        and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    )


@given(PODS, PODS)
def test_ids_are_names_and_differ_where_sources_do(one: Any, other: Any) -> None:
    gangs = [gang_of(each, ALL) for each in (one, other)]
    first, second = (each for each in gangs if each is not None)
    assert is_dns_label(first.id)
    assert gang_config_map(first.id) == f"preflight-{first.id}"
    assert len(gang_config_map(first.id)) <= CONFIG_MAP_NAME_MAX
    assert (first.id == second.id) == (first.source == second.source)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            pod({"workloadRef": {"name": "a-b", "podGroup": "c"}}),
            pod({"workloadRef": {"name": "a", "podGroup": "b-c"}}),
        ),
        (pod(labels={"example.org/gang": "Run_1"}), pod(labels={"example.org/gang": "run-1"})),
        (pod(annotations={"volcano.sh/pod-group": "a"}), pod({"schedulingGroup": {"podGroupName": "a"}})),
        (
            pod({"workloadRef": {"name": "a", "podGroup": "b", "podGroupReplicaKey": "c"}}),
            pod({"workloadRef": {"name": "a", "podGroup": "b-c"}}),
        ),
        (
            pod({"schedulingGroup": {"podGroupName": "n" * 100 + "1"}}),
            pod({"schedulingGroup": {"podGroupName": "n" * 100 + "2"}}),
        ),
    ],
)
def test_what_reads_alike_is_kept_apart(one: Any, other: Any) -> None:
    first, second = gang_of(one, ALL), gang_of(other, ALL)
    assert first is not None
    assert second is not None
    assert first.id != second.id
    assert first.id.rpartition("-")[0] == second.id.rpartition("-")[0]


def test_an_id_stays_what_it_is() -> None:
    """ConfigMaps and events of running pods are named by it."""
    gang = gang_of(pod({"workloadRef": {"name": "myworkload", "podGroup": "group1"}}), ALL)
    assert gang == Gang("myworkload-group1-eef1160b000f", "workload/myworkload/group1")


def admitted(**counts: int | None) -> dict[str, Any]:
    """What Kueue admits of each pod set."""
    return {"status": {"admission": {"podSetAssignments": [{"name": one, "count": counts[one]} for one in counts]}}}


POD_SETS = {
    "spec": {
        "podSets": [
            {"name": "launcher", "count": 1, "template": {"spec": {"containers": [{"resources": {}}]}}},
            {
                "name": "workers",
                "count": 4,
                "template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}},
            },
            {"name": "claims", "count": 2, "template": {"spec": {"resourceClaims": [{"name": "gpu"}]}}},
        ]
    }
}


@pytest.mark.parametrize(
    ("source", "obj", "size"),
    [
        ("scheduling-group/a", {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}, 4),
        ("scheduling-group/a", {"spec": {"schedulingPolicy": {"basic": {}}}}, None),
        ("scheduling-group/a", {}, None),
        (
            "workload/w/b/1",
            {
                "spec": {
                    "podGroups": [
                        {"name": "a", "policy": {"gang": {"minCount": 2}}},
                        {"name": "b", "policy": {"gang": {"minCount": 3}}},
                    ]
                }
            },
            3,
        ),
        ("workload/w/c", {"spec": {"podGroups": [{"name": "a", "policy": {"gang": {"minCount": 2}}}]}}, None),
        ("workload/w/c", {"spec": {"podGroups": [None, {"name": "c", "policy": {"basic": {}}}]}}, None),
        ("volcano/a", {"spec": {"minMember": 6}}, 6),
        ("volcano/a", {"spec": {"minMember": "6"}}, 6),
        ("volcano/a", {"spec": {"minMember": 0}}, None),
        ("kueue-workload/a", POD_SETS, 6),
        ("kueue-workload/a", {"spec": {"podSets": [{"count": 2}, {"count": 3}]}}, 5),
        ("kueue-workload/a", {"spec": {"podSets": []}}, None),
        ("kueue-workload/a", POD_SETS | admitted(launcher=1, workers=3, claims=None), 5),
        ("kueue-workload/a", POD_SETS | {"status": {"admission": {"podSetAssignments": [None, {"count": 9}]}}}, 6),
        ("kueue-group/a", {"spec": {"minMember": 6}}, None),
        ("nonsense", {"spec": {"minMember": 6}}, None),
    ],
)
def test_the_object_of_the_source_has_the_size(source: str, obj: Any, size: int | None) -> None:
    assert size_in(source, obj) == size


@pytest.mark.parametrize(
    ("source", "path", "name"),
    [
        ("scheduling-group/a", "/apis/scheduling.k8s.io/v1alpha2/namespaces/ns/podgroups", "a"),
        ("workload/w/b/1", "/apis/scheduling.k8s.io/v1alpha1/namespaces/ns/workloads", "w"),
        ("volcano/a", "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups", "a"),
        ("kueue-workload/a", "/apis/kueue.x-k8s.io/v1beta1/namespaces/ns/workloads", "a"),
    ],
)
def test_the_object_is_found_in_the_oldest_version_too(source: str, path: str, name: str) -> None:
    found_object = object_of(source)
    assert found_object is not None
    assert found_object.resources[-1].path("ns") == path
    assert found_object.name == name


@pytest.mark.parametrize("source", ["kueue-group/a", "label/a", "", "volcano", "volcano/", "other/a"])
def test_other_sources_have_no_object(source: str) -> None:
    assert object_of(source) is None
