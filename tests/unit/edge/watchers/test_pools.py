"""The facts of pools: their whole spec, and what a pool must not do where its spec is not understood."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.labels import ANNOTATION_MAINTENANCE
from gpuledger.edge.watchers.decide import WatchedObjects
from gpuledger.edge.watchers.fields import PROBLEMS_MAX
from gpuledger.edge.watchers.resources import gpupools
from gpuledger.events.node import LABELS_MAX
from gpuledger.events.payload import DATA_BYTES_MAX
from gpuledger.events.pool import (
    LISTED_MAX,
    TAINTS_MAX,
    DeviceFilter,
    LabelSelector,
    PoolDefined,
    PoolGone,
    PoolTaint,
)
from gpuledger.events.reach import REQUIREMENTS_MAX, NodeRequirement
from support.odd_objects import a_list, a_map, an_object, recorded, texts

KINDS = (gpupools.KIND, gpupools.CLUSTER_KIND)
NO_DEVICES = DeviceFilter(inventory_ids=("-",))

Json = dict[str, Any]


def pool(spec: object = None, **metadata: Any) -> Json:
    named = {"name": "p", "namespace": "ns", "uid": "u", "generation": 3}
    return {"metadata": named | metadata, "spec": {"resource": {"unit": "Card"}} if spec is None else spec}


def spec_with(**more: Any) -> Json:
    return {"resource": {"unit": "Card"}} | more


def payload_of(obj: Json) -> PoolDefined:
    return gpupools.KIND.combine([gpupools.KIND.read(obj).content])


def problems_of(obj: Json) -> tuple[str, ...]:
    return gpupools.KIND.read(obj).problems


def test_a_pool_with_nothing_but_required_fields() -> None:
    assert payload_of(pool()) == PoolDefined(uid="u", generation=3, unit="Card")
    assert problems_of(pool()) == ()


SELECTOR = LabelSelector(
    labels={"team": "a"}, requirements=(NodeRequirement(key="k", operator="In", values=("x", "")),)
)
EVERYTHING = PoolDefined(
    uid="u",
    generation=3,
    deleting=True,
    provider="Nvidia",
    backend="DRA",
    unit="MIG",
    mig_profile="2g.10gb",
    slices_per_unit=64,
    devices_per_node_max=2,
    node_selector=SELECTOR,
    include=DeviceFilter(
        inventory_ids=("w1-0",),
        products=("NVIDIA A100-PCIE-40GB",),
        pci_vendors=("10de",),
        pci_devices=("20f1",),
        mig_capable=True,
        mig_profiles=("2g.10gb",),
    ),
    exclude=DeviceFilter(mig_capable=False),
    requires_annotation=False,
    auto_approve=SELECTOR,
    strategy="BinPack",
    topology_key="rack",
    taints_enabled=False,
    taints=(PoolTaint(key="gpu", value="x", effect="NoSchedule"), PoolTaint(key="b", effect="NoExecute")),
    maintenance="confirmed",
)
"""What the ledger records of a pool that sets every field."""


def test_everything_that_a_pool_can_say() -> None:
    chosen = {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", ""]}]}
    listed = {
        "inventoryIDs": ["w1-0"],
        "products": ["NVIDIA A100-PCIE-40GB"],
        "pciVendors": ["10de"],
        "pciDevices": ["20f1"],
        "migCapable": True,
        "migProfiles": ["2g.10gb"],
    }
    obj = pool(
        {
            "provider": "Nvidia",
            "backend": "DRA",
            "resource": {"unit": "MIG", "migProfile": "2g.10gb", "slicesPerUnit": 64, "maxDevicesPerNode": 2},
            "nodeSelector": chosen,
            "deviceSelector": {"include": listed, "exclude": {"migCapable": False}},
            "deviceAssignment": {"requireAnnotation": False, "autoApproveSelector": chosen},
            "scheduling": {
                "strategy": "BinPack",
                "topologyKey": "rack",
                "taintsEnabled": False,
                "taints": [{"key": "gpu", "value": "x", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}],
            },
        },
        annotations={ANNOTATION_MAINTENANCE: "confirmed"},
        deletionTimestamp="2026-01-01T00:00:00Z",
    )
    assert payload_of(obj) == EVERYTHING
    assert problems_of(obj) == ()


def test_a_pool_is_called_by_its_name_and_that_of_its_namespace_if_it_has_one() -> None:
    assert gpupools.KIND.read(pool()).subject == "ns/p"
    assert gpupools.CLUSTER_KIND.read(pool(namespace=None)).subject == "p"
    nameless = gpupools.KIND.read(pool(namespace=None))
    assert (nameless.subject, nameless.problems) == (None, ("it has no namespace or no name",))


def test_what_is_written_to_a_pools_status_changes_nothing() -> None:
    assert gpupools.KIND.read(pool() | {"status": {"capacity": {"total": 1}}}) == gpupools.KIND.read(pool())


def test_an_empty_exclude_excludes_nothing_and_an_empty_auto_approval_approves_all() -> None:
    spec = spec_with(
        deviceSelector={"include": {}, "exclude": {"products": []}}, deviceAssignment={"autoApproveSelector": {}}
    )
    payload = payload_of(pool(spec))
    assert (payload.include, payload.exclude, payload.auto_approve) == (DeviceFilter(), None, LabelSelector())


IN_ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


@pytest.mark.parametrize(
    "selector",
    [
        "all",
        {"matchLabels": "a"},
        {"matchLabels": {"a": 1}},
        {"matchLabels": {"a": "x" * 300}},
        {"matchLabels": {"a": "\0"}},
        {"matchLabels": {"x" * 300: "a"}},
        {"matchLabels": {f"l{index}": "x" for index in range(LABELS_MAX + 1)}},
        {"matchExpressions": IN_ZONE},
        {"matchExpressions": ["zone"]},
        {"matchExpressions": [IN_ZONE] * (REQUIREMENTS_MAX + 1)},
        {"matchExpressions": [{"key": "zone"}]},
        {"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["1"]}]},
        {"matchExpressions": [{"key": "zone", "operator": "In"}]},
        {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": []}]},
        {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": [1]}]},
        {"matchExpressions": [{"key": "zone", "operator": "Exists", "values": ["a"]}]},
        {"matchFields": []},
    ],
)
def test_labels_that_are_not_understood_select_nothing(selector: Any) -> None:
    by_node, by_device = spec_with(nodeSelector=selector), {"requireAnnotation": False, "autoApproveSelector": selector}
    payload = payload_of(pool(by_node))
    assert (payload.node_selector, payload.include) == (LabelSelector(), NO_DEVICES)
    assert problems_of(pool(by_node))[0].startswith(("nodeSelector", "'matchFields' in nodeSelector"))
    payload = payload_of(pool(spec_with(deviceAssignment=by_device)))
    assert (payload.requires_annotation, payload.auto_approve, payload.include) == (True, None, DeviceFilter())


@pytest.mark.parametrize(
    "devices",
    [
        "all",
        {"products": "A100"},
        {"products": ["A100", 1]},
        {"products": [""]},
        {"inventoryIDs": ["x" * 300]},
        {"pciVendors": ["10de"] * (LISTED_MAX + 1)},
        {"migCapable": "true"},
        {"serials": ["1"]},
    ],
)
@pytest.mark.parametrize("where", ["include", "exclude"])
def test_devices_that_are_not_understood_are_not_taken(devices: Any, where: str) -> None:
    other = {"include": {"products": ["A100"]}} if where == "exclude" else {"exclude": {"products": ["A100"]}}
    payload = payload_of(pool(spec_with(deviceSelector={where: devices} | other)))
    assert (payload.include, payload.exclude) == (NO_DEVICES, None)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (5, "resource.unit is None"),
        ({}, "resource.unit is None"),
        ({"resource": []}, "resource is a list"),
        ({"resource": {"unit": "Board"}}, "resource.unit is 'Board'"),
        ({"resource": {"unit": "Card", "maxDevicesPerNode": 0}}, "resource.maxDevicesPerNode is 0"),
        ({"resource": {"unit": "Card", "maxDevicesPerNode": "2"}}, "resource.maxDevicesPerNode is '2'"),
        ({"resource": {"unit": "Card", "maxDevicesPerNode": True}}, "resource.maxDevicesPerNode is True"),
        ({"resource": {"unit": "Card", "sharing": "MPS"}}, "'sharing' in resource is not known"),
        (spec_with(provider=["Nvidia"]), "provider is a list"),
        (spec_with(backend={}), "backend is an object"),
        (spec_with(deviceSelector=1), "deviceSelector is 1"),
    ],
)
def test_a_pool_that_is_not_understood_takes_nothing_and_has_problems(spec: Any, problem: str) -> None:
    payload = payload_of(pool(spec))
    assert (payload.include, payload.devices_per_node_max) == (NO_DEVICES, None)
    assert problems_of(pool(spec))[0] == problem


@pytest.mark.parametrize("slices", [0, 65, -1, "2", True, 1.5])
def test_slices_that_are_not_understood_are_one(slices: object) -> None:
    obj = pool({"resource": {"unit": "Card", "slicesPerUnit": slices}})
    payload = payload_of(obj)
    assert (payload.slices_per_unit, payload.include) == (1, DeviceFilter())
    assert problems_of(obj) == (f"resource.slicesPerUnit is {slices!r}",)


@pytest.mark.parametrize("assignment", [1, {"requireAnnotation": "no"}, {"requireAnnotation": False, "approve": "all"}])
def test_an_assignment_that_is_not_understood_waits_for_people(assignment: Any) -> None:
    payload = payload_of(pool(spec_with(deviceAssignment=assignment)))
    assert (payload.requires_annotation, payload.auto_approve, payload.include) == (True, None, DeviceFilter())
    assert problems_of(pool(spec_with(deviceAssignment=assignment)))


@pytest.mark.parametrize(
    "scheduling",
    [
        "Spread",
        {"strategy": "Random", "topologyKey": 1, "taintsEnabled": "no", "taints": {}},
        {"taints": ["gpu", {"key": "a"}, {"effect": "NoExecute"}, {"key": "a", "effect": "Sometimes"}]},
    ],
)
def test_scheduling_that_is_not_understood_is_left_out(scheduling: Any) -> None:
    obj = pool(spec_with(scheduling=scheduling))
    assert payload_of(obj) == PoolDefined(uid="u", generation=3, unit="Card")
    assert problems_of(obj)


def test_more_taints_than_an_event_holds_are_noted() -> None:
    taints = [{"key": f"t{index}", "effect": "NoSchedule"} for index in range(TAINTS_MAX + 1)]
    obj = pool(spec_with(scheduling={"taints": taints}))
    assert len(payload_of(obj).taints) == TAINTS_MAX
    problem = f"scheduling.taints has {TAINTS_MAX + 1} entries; only {TAINTS_MAX} of them are recorded"
    assert problems_of(obj) == (problem,)


@pytest.mark.parametrize(
    ("annotation", "maintenance", "is_reported"),
    [
        (None, None, False),
        ("", None, False),
        ("enabled", "enabled", False),
        ("confirmed", "confirmed", False),
        ("Confirmed", "enabled", True),
        ("true", "enabled", True),
        (1, "enabled", True),
    ],
)
def test_maintenance_is_kept_where_it_is_not_understood(annotation: Any, maintenance: Any, is_reported: bool) -> None:
    obj = pool(annotations={ANNOTATION_MAINTENANCE: annotation})
    assert payload_of(obj).maintenance == maintenance
    assert bool(problems_of(obj)) == is_reported


def test_a_pool_that_is_too_large_takes_nothing() -> None:
    labels = {f"{index:04}{'é' * 240}": "é" * 250 for index in range(LABELS_MAX)}
    part = gpupools.KIND.read(pool(spec_with(nodeSelector={"matchLabels": labels})))
    assert gpupools.KIND.combine([part.content]).include == NO_DEVICES
    assert part.problems == (
        "it is too large for an event; its selectors, without which it takes no device, are left out",
    )


def test_problems_that_are_too_many_to_show_still_count() -> None:
    obj = pool(spec_with(nodeSelector={"matchLabels": {"a": 1}}), annotations={ANNOTATION_MAINTENANCE: "x"})
    obj["spec"]["scheduling"] = {f"k{index}": 1 for index in range(PROBLEMS_MAX)}
    obj["spec"]["deviceAssignment"] = {"autoApproveSelector": {f"k{index}": 1 for index in range(PROBLEMS_MAX)}}
    payload = payload_of(obj)
    assert (payload.include, payload.auto_approve) == (NO_DEVICES, None)
    assert len(problems_of(obj)) == PROBLEMS_MAX


def test_the_tombstone_of_a_pool() -> None:
    for kind in KINDS:
        assert kind.tombstone_of("u") == PoolGone(uid="u")
    assert len({kind.source for kind in KINDS}) == len(KINDS)


_operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"])
_requirement = an_object(key=texts, operator=_operators, values=a_list(texts))
_selector = an_object(matchLabels=a_map(texts), matchExpressions=a_list(_requirement))
_listed = {name: a_list(texts) for name in ("inventoryIDs", "products", "pciVendors", "pciDevices", "migProfiles")}
_filter = an_object(migCapable=st.booleans(), **_listed)
_odd = st.fixed_dictionaries(
    {},
    optional={
        "metadata": an_object(
            name=st.just("n") | texts,
            namespace=st.just("ns") | texts,
            uid=texts,
            generation=st.integers(),
            annotations=st.fixed_dictionaries({ANNOTATION_MAINTENANCE: texts}),
            deletionTimestamp=texts,
        ),
        "spec": an_object(
            provider=texts,
            backend=texts,
            resource=an_object(
                unit=st.sampled_from(["Card", "MIG", "x"]),
                migProfile=texts,
                slicesPerUnit=st.integers(),
                maxDevicesPerNode=st.integers(),
            ),
            nodeSelector=_selector,
            deviceSelector=an_object(include=_filter, exclude=_filter),
            deviceAssignment=an_object(requireAnnotation=st.booleans(), autoApproveSelector=_selector),
            scheduling=an_object(
                strategy=texts,
                topologyKey=texts,
                taintsEnabled=st.booleans(),
                taints=a_list(an_object(key=texts, value=texts, effect=st.just("NoSchedule") | texts)),
            ),
        ),
    },
)


@given(obj=_odd)
def test_any_object_can_be_read_and_recorded(obj: Json) -> None:
    for kind in KINDS:
        part = kind.read(obj)
        assert len(part.content) <= DATA_BYTES_MAX
        assert WatchedObjects(kind, [part]).subjects() == ({part.subject} if part.subject else set())
        if part.subject is not None:
            recorded(kind, part.subject, part.content)


@given(obj=_odd)
def test_a_pool_without_a_problem_was_understood_whole(obj: Json) -> None:
    """It never selects by less than was written."""
    part = gpupools.KIND.read(obj)
    if part.subject is None or part.problems:
        return
    payload, spec = gpupools.KIND.combine([part.content]), obj["spec"]
    written = spec.get("nodeSelector") or {}
    assert len(payload.node_selector.labels) == len(written.get("matchLabels") or {})
    assert len(payload.node_selector.requirements) == len(written.get("matchExpressions") or [])
    include = (spec.get("deviceSelector") or {}).get("include") or {}
    assert sum(map(len, (payload.include.products, payload.include.mig_profiles))) == sum(
        len(include.get(name) or []) for name in ("products", "migProfiles")
    )
