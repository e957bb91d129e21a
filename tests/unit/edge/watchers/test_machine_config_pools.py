"""The facts of MachineConfigPools: their whole spec, and what a pool must not do where its spec is not understood."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.machine_config import ANNOTATION_PINNED
from gpuledger.domain.machineconfig.selection import selection_of
from gpuledger.edge.watchers.decide import WatchedObjects
from gpuledger.edge.watchers.resources.machineconfigpools import KIND
from gpuledger.events.machine_config import MachineConfigPoolDefined
from gpuledger.events.payload import DATA_BYTES_MAX
from gpuledger.events.pool import LabelSelector
from gpuledger.events.reach import NodeRequirement
from support.odd_objects import a_list, a_map, an_object, recorded, texts

Json = dict[str, Any]


def pool(spec: object = None, **metadata: Any) -> Json:
    named = {"name": "worker", "uid": "u", "generation": 3}
    return {"metadata": named | metadata, "spec": {} if spec is None else spec}


def payload_of(obj: Json) -> MachineConfigPoolDefined:
    return KIND.combine([KIND.read(obj).content])


def rollout(**fields: Any) -> Json:
    return pool({"nodeSelector": {}, "rollout": fields})


def test_a_pool_with_nothing_selects_nothing_and_has_the_defaults() -> None:
    assert payload_of(pool()) == MachineConfigPoolDefined(uid="u", generation=3)
    assert selection_of(payload_of(pool())) == (None, None)


def test_a_whole_spec() -> None:
    spec = {
        "nodeSelector": {"matchLabels": {"role": "gpu"}},
        "machineConfigSelector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["a"]}]},
        "rollout": {
            "debounceSeconds": 0, "applyTimeoutSeconds": 60, "maxUnavailable": "25%", "drainTimeoutSeconds": 86_400,
            "drainRetrySeconds": 10, "preferIdle": True,
        },
        "reboot": {"strategy": "IfRequired", "minIntervalSeconds": 0},
        "revisionHistory": {"limit": 0},
        "paused": True,
    }  # fmt: skip
    requirement = NodeRequirement(key="k", operator="In", values=("a",))
    assert payload_of(pool(spec, annotations={ANNOTATION_PINNED: "rendered-worker-a"})) == MachineConfigPoolDefined(
        uid="u",
        generation=3,
        node_selector=LabelSelector(labels={"role": "gpu"}),
        config_selector=LabelSelector(requirements=(requirement,)),
        debounce_s=0,
        apply_timeout_s=60,
        max_unavailable="25%",
        drain_timeout_s=86_400,
        drain_retry_s=10,
        reboot_strategy="IfRequired",
        reboot_min_interval_s=0,
        history_limit=0,
        paused=True,
        prefers_idle=True,
        pinned_revision="rendered-worker-a",
    )


@pytest.mark.parametrize(("given", "expected"), [(1, "1"), (40, "40"), ("1%", "1%"), ("100%", "100%"), (None, "1")])
def test_how_many_nodes_may_be_unavailable(given: object, expected: str) -> None:
    found = payload_of(rollout(maxUnavailable=given))
    assert (found.max_unavailable, found.problems) == (expected, ())


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        *[
            (rollout(maxUnavailable=value), "spec.rollout.maxUnavailable is ")
            for value in (0, -1, 10**9, True, "2", "0%", "101%", "1.5%", "")
        ],
        (rollout(debounceSeconds=3601), "spec.rollout.debounceSeconds is 3601; give a whole number from 0 to 3600"),
        (rollout(applyTimeoutSeconds=59), "spec.rollout.applyTimeoutSeconds is 59; give a whole number from 60"),
        (rollout(drainTimeoutSeconds=59), "spec.rollout.drainTimeoutSeconds is 59"),
        (rollout(drainRetrySeconds=9), "spec.rollout.drainRetrySeconds is 9"),
        (rollout(window="night"), "'window' in spec.rollout is not known"),
        (pool({"nodeSelector": {}, "reboot": {"strategy": "Always"}}), "spec.reboot.strategy is 'Always'"),
        (pool({"nodeSelector": {}, "revisionHistory": {"limit": -1}}), "spec.revisionHistory.limit is -1"),
        (pool({"nodeSelector": {}, "paused": "yes"}), "spec.paused is 'yes'"),
        (pool({"nodeSelector": {"matchLabels": {"a": 1}}}), "spec.nodeSelector.matchLabels[a].value is 1"),
        (pool({"nodeSelector": {"labels": {}}}), "'labels' in spec.nodeSelector is not known"),
        (pool({"nodeSelector": {}}, name="a" * 64), "metadata.name has more than 63 characters"),
    ],
)
def test_a_pool_that_is_not_understood_selects_nothing(obj: Json, problem: str) -> None:
    definition = payload_of(obj)
    assert any(one.startswith(problem) for one in definition.problems), definition.problems
    assert (definition.node_selector, definition.config_selector) == (None, None)


def test_status_and_other_annotations_are_no_facts() -> None:
    obj = pool({"nodeSelector": {}})
    assert KIND.read(pool({"nodeSelector": {}}, annotations={"a": "b"}) | {"status": {"machineCount": 1}}) == KIND.read(
        obj
    )


def test_selectors_that_are_too_large_for_an_event() -> None:
    labels = {f"{n}": "é" * 253 for n in range(128)}
    expressions = [{"key": "k", "operator": "In", "values": ["é" * 253] * 128}] * 16
    found = payload_of(pool({"nodeSelector": {"matchLabels": labels, "matchExpressions": expressions}}))
    assert (found.node_selector, len(found.problems)) == (None, 1)


_selector = an_object(
    matchLabels=a_map(texts),
    matchExpressions=a_list(an_object(key=texts, operator=st.just("In") | texts, values=a_list(texts))),
)
_odd = st.fixed_dictionaries(
    {},
    optional={
        "metadata": an_object(name=st.just("p"), uid=texts, annotations=a_map(texts)),
        "spec": an_object(
            nodeSelector=_selector,
            machineConfigSelector=_selector,
            rollout=an_object(maxUnavailable=texts | st.integers(), debounceSeconds=st.integers()),
            reboot=an_object(strategy=st.just("Never"), minIntervalSeconds=st.integers()),
            revisionHistory=an_object(limit=st.integers()),
            paused=st.booleans(),
        ),
    },
)


@given(obj=_odd)
def test_any_object_can_be_read_and_recorded(obj: Json) -> None:
    part = KIND.read(obj)
    assert len(part.content) <= DATA_BYTES_MAX
    assert WatchedObjects(KIND, [part]).subjects() == ({part.subject} if part.subject else set())
    if part.subject is None:
        return
    recorded(KIND, part.subject, part.content)
    definition, written = KIND.combine([part.content]), (obj.get("spec") or {})
    if part.problems:
        assert definition.node_selector is None
    elif isinstance(written, dict) and written.get("nodeSelector") is not None:
        given = written["nodeSelector"]
        assert definition.node_selector is not None
        assert len(definition.node_selector.labels) == len(given.get("matchLabels") or {})
        assert len(definition.node_selector.requirements) == len(given.get("matchExpressions") or [])
