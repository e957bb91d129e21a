"""What watchers make of pods that ask for units of pools, and of namespaces: values in, values out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.labels import LABEL_ENABLED
from gpuledger.edge.watchers.decide import WatchedObjects
from gpuledger.edge.watchers.resources import namespaces, pods
from gpuledger.events.namespace import NamespaceGone, NamespaceObserved
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.pod import RESOURCES_MAX, PodGone, PodObserved
from support.odd_objects import a_list, a_map, an_object, anything, recorded, texts

KINDS = (pods.KIND, namespaces.KIND)
A, B = "gpu.deckhouse.io/a", "cluster.gpu.deckhouse.io/b"

Json = dict[str, Any]


def container(units: object = None, *, of: str = A, stays: bool = False, **resources: Json) -> Json:
    given = resources or {"limits": {of: units}}
    return {"name": "c", "resources": given} | ({"restartPolicy": "Always"} if stays else {})


def pod(*containers: Any, init: Any = (), phase: str = "Running", **spec: Any) -> Json:
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    whole = {"containers": list(containers), "initContainers": list(init)} | spec
    return {"metadata": metadata, "spec": whole, "status": {"phase": phase}}


def requests(obj: Json) -> dict[str, int]:
    part = pods.read(obj)
    return {} if part.subject is None else pods.KIND.combine([part.content]).requests


def test_a_pod_is_observed_where_it_runs() -> None:
    part = pods.read(pod(container("2"), nodeName="w1"))
    assert part.subject == "ns/p"
    assert pods.KIND.combine([part.content]) == PodObserved(uid="u", node="w1", requests={A: 2})
    assert pods.KIND.combine([pods.read(pod(container("2"))).content]).node is None


@pytest.mark.parametrize(
    ("obj", "units"),
    [
        (pod(container("1"), container("2")), {A: 3}),
        (pod(container("1"), container(2, of=B)), {A: 1, B: 2}),
        (pod(container("1"), init=[container("2"), container("3")]), {A: 3}),
        (pod(container("4"), init=[container("2"), container("3")]), {A: 4}),
        (pod(init=[container("2")]), {A: 2}),
        (pod(container("1"), init=[container("1", stays=True)]), {A: 2}),
        (pod(container("1"), init=[container("1", stays=True), container("5")]), {A: 6}),
        (pod(container("1"), init=[container("5"), container("1", stays=True)]), {A: 5}),
        (
            pod(container("1"), init=[container("1", stays=True), container("2", stays=True), container("1")]),
            {A: 4},
        ),
        (pod(container(limits={A: "2"}, requests={A: "2"})), {A: 2}),
        (pod(container(limits={A: "2"}, requests={A: None})), {A: 2}),
        (pod(container(requests={A: "2", "cpu": "500m"}, limits={"nvidia.com/gpu": "1"})), {A: 2}),
        (pod(container("1k")), {A: 1000}),
        (pod(container(str(BIGINT_MAX)), container("1")), {A: BIGINT_MAX}),
    ],
)
def test_how_much_a_pod_needs_at_once(obj: Json, units: dict[str, int]) -> None:
    assert requests(obj) == units
    assert pods.read(obj).problems == ()


@pytest.mark.parametrize(
    "obj",
    [
        pod(),
        pod({"name": "c"}),
        pod(container("0")),
        pod(container("1", of="nvidia.com/gpu")),
        pod(container("1", of="other.gpu.deckhouse.io/a")),
        pod(container("1"), phase="Succeeded"),
        pod(container("1"), phase="Failed"),
        {},
    ],
)
def test_a_pod_that_holds_no_unit_is_skipped(obj: Json) -> None:
    assert pods.read(obj)[1:] == (None, b"", ())


@pytest.mark.parametrize(
    ("amount", "units", "is_reported"),
    [
        ("500m", {A: 1}, True),
        ("-1", {}, True),
        ("much", {}, True),
        ([], {}, True),
        (None, {}, False),
        ("2", {A: 2}, False),
    ],
)
def test_amounts_that_are_not_whole_are_problems(amount: object, units: dict[str, int], is_reported: bool) -> None:
    obj = pod(container(amount))
    assert requests(obj) == units
    assert bool(pods.read(obj).problems) == is_reported


def test_more_resources_than_an_event_holds_are_noted() -> None:
    obj = pod(*(container("1", of=f"gpu.deckhouse.io/p{index:03}") for index in range(RESOURCES_MAX + 1)))
    assert len(requests(obj)) == RESOURCES_MAX
    assert pods.read(obj).problems == (
        f"it requests {RESOURCES_MAX + 1} resources; only {RESOURCES_MAX} of them are recorded",
    )


def test_a_pod_that_ends_is_gone() -> None:
    watched = WatchedObjects(pods.KIND, [pods.read(pod(container("1")))])
    assert watched.put(pods.read(pod(container("1"), phase="Succeeded"))) == ("ns/p",)
    assert watched.payload("ns/p") is None
    assert pods.KIND.tombstone_of("u") == PodGone(uid="u")


def test_how_a_pod_gets_on_changes_nothing() -> None:
    before, after = pod(container("1"), nodeName="w1"), pod(container("1"), nodeName="w1", phase="Pending")
    after["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert pods.read(before) == pods.read(after)


@pytest.mark.parametrize(
    ("labels", "is_enabled"),
    [({LABEL_ENABLED: "true"}, True), ({LABEL_ENABLED: "false"}, False), ({LABEL_ENABLED: True}, False), (None, False)],
)
def test_namespaces(labels: Any, is_enabled: bool) -> None:
    part = namespaces.read({"metadata": {"name": "ns", "uid": "u", "labels": labels}})
    assert part.subject == "ns"
    assert namespaces.KIND.combine([part.content]) == NamespaceObserved(uid="u", gpu_enabled=is_enabled)
    assert namespaces.KIND.tombstone_of("u") == NamespaceGone(uid="u")


_resources = a_map(texts) | st.dictionaries(st.sampled_from([A, B]), texts | st.integers(-1, 5) | anything)
_container = an_object(
    name=texts,
    resources=an_object(limits=_resources, requests=_resources),
    restartPolicy=st.just("Always") | texts,
)
_odd = st.fixed_dictionaries(
    {},
    optional={
        "metadata": an_object(
            name=st.just("n") | texts, namespace=st.just("ns") | texts, uid=texts, labels=a_map(texts)
        ),
        "spec": an_object(containers=a_list(_container), initContainers=a_list(_container), nodeName=texts),
        "status": an_object(phase=st.sampled_from(["Failed", "Running"])),
    },
)


@given(obj=_odd)
def test_any_object_can_be_read_and_recorded(obj: Json) -> None:
    for kind in KINDS:
        part = kind.read(obj)
        assert WatchedObjects(kind, [part]).subjects() == ({part.subject} if part.subject else set())
        if part.subject is not None:
            recorded(kind, part.subject, part.content)


_units = st.integers(0, 5)
_asking = st.tuples(_units, st.booleans())


@given(init=st.lists(_asking, max_size=5), containers=st.lists(_units, max_size=4))
def test_a_pod_needs_no_less_than_it_ever_has_at_once(init: list[tuple[int, bool]], containers: list[int]) -> None:
    obj = pod(*map(container, containers), init=[container(units, stays=stays) for units, stays in init])
    staying = [sum(units for units, stays in init[:index] if stays) for index in range(len(init) + 1)]
    at_start = [units + before for (units, _), before in zip(init, staying[:-1], strict=True)]
    most = max([*at_start, staying[-1] + sum(containers)])
    assert requests(obj) == ({A: most} if most else {})
