"""Leases are written by compare-and-swap, and their times have one form."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.local.kubeapi.resources import Context
from gpuledger.local.kubeapi.strategies.leases import LeaseStrategy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASES = LeaseStrategy()


def lease(**spec: Any) -> Any:
    return {"metadata": {"name": "leader", "namespace": "a"}, "spec": spec}


def test_is_created_by_put_and_changed_only_with_a_resource_version() -> None:
    assert LEASES.creates_on_update
    assert not LEASES.updates_unconditionally
    assert not LEASES.has_generation


@pytest.mark.parametrize(
    ("spec", "field"),
    [({"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds"), ({"leaseTransitions": -1}, "spec.leaseTransitions")],
)
def test_refuses_numbers_out_of_range(spec: Any, field: Any) -> None:
    assert [(cause.reason, cause.field) for cause in LEASES.validate(lease(**spec))] == [("FieldValueInvalid", field)]
    assert LEASES.validate_update(lease(**spec), lease(), "")


def test_accepts_an_empty_spec_and_drops_coordination() -> None:
    obj = lease(strategy="OldestEmulationVersion", preferredHolder="x")
    LEASES.prepare_for_create(obj, Context(NOW, "me", []))
    assert obj["spec"] == {}
    assert LEASES.validate(obj) == []
