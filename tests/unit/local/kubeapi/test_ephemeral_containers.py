"""Ephemeral containers: added through their own subresource alone, and never changed or removed."""

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.resources import Context
from gpuledger.local.kubeapi.strategies.ephemeral_containers import SUBRESOURCE
from gpuledger.local.kubeapi.strategies.pods import PodStrategy

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DEBUG: Object = {"name": "debug", "image": "busybox:1", "targetContainerName": "main"}


@pytest.fixture
def pod() -> Object:
    made: Object = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [{"name": "main", "image": "i:1"}]},
    }
    PodStrategy().default(made)
    PodStrategy().prepare_for_create(made, Context(NOW, "u", []))
    return made


def written(old: Object, containers: list[Object], **more: Any) -> Object:
    """The pod that a write of these containers leaves, with other changes in the same request."""
    new = deepcopy(old)
    new["spec"]["ephemeralContainers"] = deepcopy(containers)
    new["spec"] |= more
    new["metadata"]["labels"] = {"changed": "too"}
    PodStrategy().default(new)
    PodStrategy().prepare_for_update(new, old, SUBRESOURCE, Context(NOW, "u", []))
    return new


def causes(new: Object, old: Object) -> set[tuple[str, str]]:
    return {(one.reason, one.field) for one in PodStrategy().validate_update(new, old, SUBRESOURCE)}


def test_the_subresource_writes_nothing_else(pod: Object) -> None:
    new = written(pod, [DEBUG], nodeName="elsewhere")
    assert causes(new, pod) == set()
    assert [one["name"] for one in new["spec"].pop("ephemeralContainers")] == ["debug"]
    assert new == pod


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (DEBUG | {"name": "main"}, ("FieldValueDuplicate", "name")),
        (DEBUG | {"name": ""}, ("FieldValueRequired", "name")),
        (DEBUG | {"name": "Debug"}, ("FieldValueInvalid", "name")),
        (DEBUG | {"image": ""}, ("FieldValueRequired", "image")),
        (DEBUG | {"targetContainerName": "other"}, ("FieldValueNotFound", "targetContainerName")),
        (DEBUG | {"resources": {"limits": {"cpu": "1"}}}, ("FieldValueForbidden", "resources")),
    ],
)
def test_one_that_cannot_be_is_refused(pod: Object, container: Object, expected: tuple[str, str]) -> None:
    reason, field = expected
    assert causes(written(pod, [container]), pod) == {(reason, f"spec.ephemeralContainers[0].{field}")}


@pytest.mark.parametrize("containers", [[], [DEBUG | {"image": "other:1"}]])
def test_one_that_is_there_stays_as_it_is(pod: Object, containers: list[Object]) -> None:
    before = written(pod, [DEBUG])
    assert causes(written(before, containers), before) == {("FieldValueForbidden", "spec.ephemeralContainers")}


def test_no_other_write_adds_one(pod: Object) -> None:
    new = written(pod, [DEBUG])
    assert {one.field for one in PodStrategy().validate(new)} == {"spec.ephemeralContainers"}
    assert {one.field for one in PodStrategy().validate_update(new, pod, "")} == {"spec"}
