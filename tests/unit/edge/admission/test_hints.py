"""Hints: what a pod gets from its pool, and that nothing of the user's is ever touched."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.dra.objects import LabelledNode, NodeExpression, Reach
from gpuledger.domain.dra.reach import reaches
from gpuledger.domain.inventory.state import DEFAULT_SETTINGS
from gpuledger.domain.pools.spec import spec_of
from gpuledger.edge.admission.cache import CachedPool
from gpuledger.edge.admission.errors import DenialError
from gpuledger.edge.admission.rules.requirements import contradiction
from gpuledger.edge.admission.rules.scheduling_hints import POOL_LABEL, tolerates, with_hints
from gpuledger.edge.webhooks.errors import PatchError
from gpuledger.edge.webhooks.serving.patch import additions
from gpuledger.events.pool import PoolDefined, PoolTaint
from gpuledger.local.kubeapi.patches import json_patch
from support.admission import Json, pod_with

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ZONE = "topology.kubernetes.io/zone"
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def pool_of(name: str = "a", namespace: str = "", **spec: Any) -> CachedPool:
    return CachedPool(PoolRef(name, namespace), spec_of(PoolDefined(uid="u", unit="Card", **spec)))


def changed(pod: Json, pool: CachedPool) -> Json:
    return with_hints(pod, pool, DEFAULT_SETTINGS)


def refused(pod: Json, pool: CachedPool) -> str:
    with pytest.raises(DenialError) as caught:
        with_hints(pod, pool, DEFAULT_SETTINGS)
    return caught.value.reason


def gpu_pod(**spec: Any) -> Json:
    return pod_with("cluster.gpu.deckhouse.io/a", spec=spec)


def required(*terms: list[Json]) -> Json:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}}}


def expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def test_pods_tolerate_the_taints_of_their_pool() -> None:
    found = changed(gpu_pod(), pool_of(taints=[TAINT, {"key": "only", "effect": "NoExecute"}]))
    assert found["spec"]["tolerations"] == [
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "only", "operator": "Exists", "effect": "NoExecute"},
    ]
    assert "tolerations" not in changed(gpu_pod(), pool_of(taints=[TAINT], taints_enabled=False))["spec"]


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_who_tolerates_a_taint_already_gets_no_second_toleration(toleration: Json, fits: bool) -> None:
    assert tolerates(toleration, PoolTaint(**TAINT)) is fits
    found = changed(gpu_pod(tolerations=[toleration]), pool_of(taints=[TAINT]))
    assert len(found["spec"]["tolerations"]) == (1 if fits else 2)


def test_pods_follow_the_pools_node_selector() -> None:
    selector = {"labels": {"zone": "a"}, "requirements": [{"key": "gpu", "operator": "Exists"}]}
    found = changed(gpu_pod(), pool_of(node_selector=selector))
    assert found["spec"]["affinity"] == required([expression("zone", "In", "a"), expression("gpu", "Exists")])


def test_each_alternative_of_the_user_is_narrowed() -> None:
    own = required([expression("disk", "Exists")], [expression("zone", "In", "a", "b")], [])
    found = changed(gpu_pod(affinity=own), pool_of(node_selector={"labels": {"zone": "a"}}))
    in_a = expression("zone", "In", "a")
    terms = found["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [term["matchExpressions"] for term in terms] == [
        [expression("disk", "Exists"), in_a],
        [expression("zone", "In", "a", "b"), in_a],
        [],
    ]


@pytest.mark.parametrize(
    ("spec", "is_refused"),
    [
        ({"nodeSelector": {"zone": "b"}}, True),
        ({"nodeSelector": {"zone": "a"}}, False),
        ({"affinity": required([expression("zone", "NotIn", "a")])}, True),
        ({"affinity": required([expression("zone", "DoesNotExist")])}, True),
        ({"affinity": required([expression("zone", "In", "b")], [expression("zone", "In", "a")])}, False),
        ({"affinity": required([expression("cores", "Gt", "4")])}, False),
    ],
)
def test_a_placement_that_leaves_no_node_is_refused(spec: Json, is_refused: bool) -> None:
    pool = pool_of(node_selector={"labels": {"zone": "a"}})
    if is_refused:
        assert refused(gpu_pod(**spec), pool) == "PlacementConflict"
    else:
        changed(gpu_pod(**spec), pool)


@pytest.mark.parametrize("selector", [{}, {"labels": {"zone": "a"}}])
def test_a_pod_that_contradicts_itself_is_left_to_the_scheduler(selector: Json) -> None:
    pool, disk = pool_of(node_selector=selector), [expression("disk", "In", "c")]
    changed(gpu_pod(nodeSelector={"disk": "b"}, affinity=required(disk)), pool)
    elsewhere = gpu_pod(nodeSelector={"disk": "b"}, affinity=required(disk, [expression("zone", "In", "b")]))
    if selector:
        assert refused(elsewhere, pool) == "PlacementConflict"
    else:
        changed(elsewhere, pool)


def test_another_pools_label_is_refused() -> None:
    pod = pod_with("cluster.gpu.deckhouse.io/a", labels={POOL_LABEL: "b"})
    assert refused(pod, pool_of()) == "PoolLabelConflict"
    assert changed(gpu_pod(), pool_of())["metadata"]["labels"] == {POOL_LABEL: "a"}


def test_a_pool_that_spreads() -> None:
    constraint = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}
    constraint |= {"labelSelector": {"matchLabels": {POOL_LABEL: "a"}}}
    pool = pool_of(strategy="Spread", topology_key="rack")
    assert changed(gpu_pod(), pool)["spec"]["topologySpreadConstraints"] == [constraint]
    own = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    assert changed(gpu_pod(topologySpreadConstraints=[own]), pool)["spec"]["topologySpreadConstraints"] == [own]


@pytest.mark.parametrize("namespace", ["", "team"])
def test_a_pool_that_packs(namespace: str) -> None:
    term = {"labelSelector": {"matchLabels": {POOL_LABEL: "a"}}, "topologyKey": "rack"}
    if not namespace:
        term["namespaceSelector"] = {}
    found = changed(gpu_pod(), pool_of(namespace=namespace, strategy="BinPack", topology_key="rack"))
    assert found["spec"]["affinity"] == {"podAffinity": {PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}}


def test_the_modules_settings_are_the_pools_defaults() -> None:
    packing = DEFAULT_SETTINGS._replace(scheduling_strategy="BinPack")
    found = with_hints(gpu_pod(), pool_of(), packing)
    assert found["spec"]["affinity"]["podAffinity"][PREFERRED][0]["podAffinityTerm"]["topologyKey"] == ZONE
    assert changed(gpu_pod(), pool_of())["spec"]["topologySpreadConstraints"][0]["topologyKey"] == ZONE


@pytest.mark.parametrize(
    ("before", "after"),
    [({"a": 1}, {"a": 2}), ({"a": 1}, {}), ([1, 2], [1]), ({"a": [1]}, {"a": [2, 1]}), ({"a": {}}, {"a": None})],
)
def test_a_patch_that_takes_something_away_cannot_be_written(before: object, after: object) -> None:
    with pytest.raises(PatchError, match="A hint would"):
        list(additions(before, after))


keys = st.sampled_from(["zone", "disk", "cores"])
values = st.sampled_from(["a", "b", "3", "7"])
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])


@st.composite
def expressions(draw: st.DrawFn, operators: st.SearchStrategy[str] = operators) -> Json:
    operator = draw(operators)
    many = {"Exists": 0, "DoesNotExist": 0, "Gt": 1, "Lt": 1}.get(operator)
    least, most = (1, 2) if many is None else (many, many)
    chosen = draw(st.lists(values, unique=True, min_size=least, max_size=most))
    return expression(draw(keys), operator, *chosen)


terms = st.fixed_dictionaries({}, optional={"matchExpressions": st.lists(expressions(), max_size=2)})
taints = st.fixed_dictionaries(
    {"key": keys, "effect": st.sampled_from(["NoSchedule", "NoExecute"])}, optional={"value": values}
)
tolerations = st.fixed_dictionaries(
    {},
    optional={
        "key": keys, "operator": st.sampled_from(["Equal", "Exists"]), "value": values,
        "effect": st.sampled_from(["NoSchedule", "NoExecute", ""]),
    },
)  # fmt: skip
constraints = st.fixed_dictionaries({"topologyKey": keys, "maxSkew": st.integers(1, 3)})
affinities = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.fixed_dictionaries(
            {}, optional={REQUIRED: st.fixed_dictionaries({"nodeSelectorTerms": st.lists(terms, max_size=3)})}
        ),
        "podAffinity": st.none() | st.just({PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]}),
    },
)
specs = st.fixed_dictionaries(
    {"containers": st.just([{"name": "c"}])},
    optional={
        "nodeSelector": st.none() | st.dictionaries(keys, values, max_size=2),
        "tolerations": st.none() | st.lists(tolerations, max_size=3),
        "affinity": st.none() | affinities,
        "topologySpreadConstraints": st.lists(constraints, max_size=2),
    },
)
labels = st.none() | st.dictionaries(st.sampled_from(["x", POOL_LABEL]), st.sampled_from(["a", "b"]), max_size=2)
pods = st.fixed_dictionaries({"metadata": st.fixed_dictionaries({}, optional={"labels": labels}), "spec": specs})
pools = st.builds(
    pool_of,
    namespace=st.sampled_from(["", "team"]),
    node_selector=st.fixed_dictionaries(
        {"labels": st.dictionaries(keys, values, max_size=2)},
        optional={
            "requirements": st.lists(
                expressions(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"])), max_size=2
            )
        },
    ),
    strategy=st.sampled_from(["Spread", "BinPack", None]),
    topology_key=st.none() | keys,
    taints=st.lists(taints, max_size=2, unique_by=lambda one: (one["key"], one["effect"])),
    taints_enabled=st.booleans(),
)


@given(pods, pools)
def test_hints_only_add_and_a_second_time_change_nothing(pod: Json, pool: CachedPool) -> None:
    given = deepcopy(pod)
    try:
        found = with_hints(pod, pool, DEFAULT_SETTINGS)
    except DenialError:
        return
    finally:
        assert pod == given
    assert is_within(given, found)
    assert json_patch(deepcopy(given), [dict(one) for one in additions(given, found)]) == found
    assert with_hints(found, pool, DEFAULT_SETTINGS) == found


def is_within(small: Any, big: Any) -> bool:
    """Whether everything of one document is in the other, where it was; nulls are nothing."""
    if isinstance(small, dict):
        return all(value is None or (name in big and is_within(value, big[name])) for name, value in small.items())
    if isinstance(small, list):
        return len(small) <= len(big) and all(is_within(one, other) for one, other in zip(small, big, strict=False))
    return bool(small == big)


nodes = st.dictionaries(keys, values, max_size=3)


@given(st.lists(expressions(), max_size=5), nodes)
def test_what_a_node_meets_is_no_contradiction(conditions: list[Json], labels: dict[str, str]) -> None:
    requirements = tuple(
        NodeExpression(one["key"], one["operator"], tuple(one.get("values", ()))) for one in conditions
    )
    if requirements and reaches(Reach(terms=(requirements,)), LabelledNode("n", labels)):
        assert contradiction(requirements) is None


@pytest.mark.parametrize(
    "conditions",
    [
        [("zone", "In", "a"), ("zone", "In", "b")],
        [("zone", "Exists"), ("zone", "DoesNotExist")],
        [("cores", "Gt", "4"), ("cores", "Lt", "5")],
        [("cores", "In", "3"), ("cores", "Gt", "4")],
        [("cores", "In", "4"), ("cores", "Gt", "4")],
        [("cores", "In", "5"), ("cores", "Lt", "4")],
        [("cores", "In", "4"), ("cores", "Lt", "4")],
        [("cores", "In", "many"), ("cores", "Gt", "4")],
        [("cores", "DoesNotExist"), ("cores", "Lt", "4")],
        [("cores", "DoesNotExist"), ("cores", "Gt", "4")],
        [("zone", "In", "a"), ("zone", "NotIn", "a")],
    ],
)
def test_contradictions(conditions: list[tuple[str, ...]]) -> None:
    requirements = [NodeExpression(key, operator, tuple(values)) for key, operator, *values in conditions]
    assert contradiction(requirements) == conditions[0][0]
    assert contradiction(requirements[:1]) is None


@pytest.mark.parametrize(
    "conditions",
    [
        [("zone", "In", "a", "b"), ("zone", "In", "b", "c")],
        [("zone", "Exists"), ("zone", "NotIn", "a")],
        [("zone", "DoesNotExist"), ("zone", "NotIn", "a")],
        [("cores", "Gt", "4"), ("cores", "Lt", "6")],
        [("cores", "In", "3", "5"), ("cores", "Gt", "4")],
        [("cores", "Gt", "many"), ("cores", "Lt", "1")],
        [("zone", "In", "a"), ("disk", "In", "b")],
    ],
)
def test_what_can_hold_together(conditions: list[tuple[str, ...]]) -> None:
    requirements = [NodeExpression(key, operator, tuple(values)) for key, operator, *values in conditions]
    assert contradiction(requirements) is None
