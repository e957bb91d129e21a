"""Tables show what `kubectl get` shows."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.builtin import BUILTIN
from gpuledger.local.kubeapi.resources import ServedResource, Strategy, TableColumn
from gpuledger.local.kubeapi.tables import cells, columns, table

NOW = datetime(2025, 1, 15, 12, 0, tzinfo=UTC)
BORN = (NOW - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
BY_KEY = {one.key: one for one in BUILTIN}


def _row(group: str, plural: str, **parts: Any) -> Object:
    obj = {"metadata": {"name": "a", "creationTimestamp": BORN} | parts.pop("metadata", {})} | parts
    resource = BY_KEY[group, plural]
    return dict(zip((column.name for column in columns(resource)), cells(resource, obj, NOW), strict=True))


@pytest.mark.parametrize("resource", BUILTIN, ids=lambda one: f"{one.plural}.{one.group}")
def test_every_built_in_type_has_a_cell_for_each_column(resource: ServedResource) -> None:
    shown = cells(resource, {"metadata": {"name": "a"}}, NOW)
    assert len(shown) == len(columns(resource))
    assert "a" in shown


def test_a_node() -> None:
    row = _row(
        "",
        "nodes",
        metadata={"labels": {"node-role.kubernetes.io/worker": ""}},
        spec={"unschedulable": True},
        status={
            "conditions": [{"type": "Ready", "status": "False"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    )
    assert row["Status"] == "NotReady,SchedulingDisabled"
    assert (row["Roles"], row["Internal-IP"], row["External-IP"], row["Age"]) == ("worker", "10.0.0.1", "<none>", "5m")


@pytest.mark.parametrize(
    ("status", "meta", "shown"),
    [
        ({"phase": "Pending"}, {}, "Pending"),
        ({"phase": "Running"}, {"deletionTimestamp": BORN}, "Terminating"),
        ({"phase": "Failed", "reason": "Evicted"}, {}, "Evicted"),
        (
            {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
            {},
            "CrashLoopBackOff",
        ),
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}, {}, "ExitCode:3"),
        (
            {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]},
            {},
            "Init:0/1",
        ),
        ({"phase": "Pending", "conditions": [{"reason": "SchedulingGated"}]}, {}, "SchedulingGated"),
    ],
)
def test_a_pods_state(status: Object, meta: Object, shown: str) -> None:
    spec = {"containers": [{"name": "m"}], "initContainers": [{"name": "i"}]}
    assert _row("", "pods", metadata=meta, spec=spec, status=status)["Status"] == shown


def test_a_pods_containers() -> None:
    statuses = [
        {"ready": True, "state": {"running": {}}, "restartCount": 2,
         "lastState": {"terminated": {"finishedAt": BORN}}},
        {"ready": False, "state": {}},
    ]  # fmt: skip
    row = _row("", "pods", spec={"containers": [{}, {}], "nodeName": "n"}, status={"containerStatuses": statuses})
    assert (row["Ready"], row["Restarts"], row["Node"]) == ("1/2", "2 (5m ago)", "n")


class _Sized(Strategy):
    def columns(self) -> Sequence[TableColumn]:
        return (TableColumn("Name", format="name"), TableColumn("Size", "integer", priority=1))

    def cells(self, obj: Object, now: datetime) -> list[object]:
        return [obj["metadata"]["name"], obj["spec"]["size"]]


SIZED = ServedResource("x.io", "v1", "Thing", "things", "thing", True, strategy=_Sized(), is_custom=True)
THING = {"metadata": {"name": "a"}, "spec": {"size": 3}}


def _table(include: str, *, watch: bool = False) -> Object:
    return table(SIZED, [THING], list_metadata={"resourceVersion": "5"}, include_object=include, now=NOW, watch=watch)


def test_a_custom_table() -> None:
    shown = _table("Metadata")
    assert (shown["kind"], shown["apiVersion"], shown["metadata"]) == (
        "Table",
        "meta.k8s.io/v1",
        {"resourceVersion": "5"},
    )
    assert shown["columnDefinitions"][1] == {
        "name": "Size", "type": "integer", "format": "", "description": "", "priority": 1,
    }  # fmt: skip
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}}
    assert shown["rows"] == [{"cells": ["a", 3], "object": partial}]


def test_rows_include_the_requested_part_of_the_object() -> None:
    assert _table("None")["rows"][0]["object"] is None
    assert _table("Object")["rows"][0]["object"] == {"kind": "Thing", "apiVersion": "x.io/v1"} | THING
    assert _table("Metadata", watch=True)["columnDefinitions"] is None


def test_a_claim_its_volume_and_its_class() -> None:
    claim = _row(
        "",
        "persistentvolumeclaims",
        spec={"volumeName": "pv-1", "storageClassName": "fast", "volumeMode": "Filesystem"},
        status={
            "phase": "Bound",
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
        },
    )
    shown = [claim[name] for name in ("Status", "Volume", "Capacity", "Access Modes", "StorageClass")]
    assert shown == ["Bound", "pv-1", "20Gi", "RWO,RWOP", "fast"]
    assert claim["VolumeAttributesClass"] == "<unset>"
    modes = {"accessModes": ["ReadOnlyMany"], "claimRef": {"namespace": "n", "name": "c"}}
    volume = _row("", "persistentvolumes", spec={**modes, "persistentVolumeReclaimPolicy": "Retain"})
    assert [volume[name] for name in ("Access Modes", "Reclaim Policy", "Claim")] == ["ROX", "Retain", "n/c"]
    is_default = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    given = {"provisioner": "p", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
    marked = _row("storage.k8s.io", "storageclasses", metadata=is_default, **given)
    plain = _row("storage.k8s.io", "storageclasses", **given, allowVolumeExpansion=True)
    assert [(one["Name"], one["AllowVolumeExpansion"]) for one in (marked, plain)] == [
        ("a (default)", False),
        ("a", True),
    ]
