"""Describes `metadata`, which every object has and no schema describes.

Field names and merge keys are those of ObjectMeta in Kubernetes' meta/v1.
"""

from gpuledger.edge.kube.schema.shapes import ANYTHING, Shape

_STRING = Shape("string")
_INTEGER = Shape("integer", format="int64")
_TIME = Shape("string", format="date-time", nullable=True)
_STRINGS = Shape("object", values=_STRING)

_OWNER = Shape(
    "object",
    fields={
        "apiVersion": _STRING,
        "kind": _STRING,
        "name": _STRING,
        "uid": _STRING,
        "controller": Shape("boolean"),
        "blockOwnerDeletion": Shape("boolean"),
    },
    atomic=True,
)

_MANAGED = Shape(
    "object",
    fields={
        "manager": _STRING,
        "operation": _STRING,
        "apiVersion": _STRING,
        "time": _TIME,
        "fieldsType": _STRING,
        "fieldsV1": ANYTHING,
        "subresource": _STRING,
    },
)

OBJECT_META = Shape(
    "object",
    fields={
        "name": _STRING,
        "generateName": _STRING,
        "namespace": _STRING,
        "selfLink": _STRING,
        "uid": _STRING,
        "resourceVersion": _STRING,
        "generation": _INTEGER,
        "creationTimestamp": _TIME,
        "deletionTimestamp": _TIME,
        "deletionGracePeriodSeconds": _INTEGER,
        "labels": _STRINGS,
        "annotations": _STRINGS,
        "ownerReferences": Shape(
            "array", items=_OWNER, list_type="map", keys=("uid",), patch_strategy="merge", patch_key="uid"
        ),
        "finalizers": Shape("array", items=_STRING, list_type="set", patch_strategy="merge"),
        "managedFields": Shape("array", items=_MANAGED),
    },
)
"""ObjectMeta: labels and annotations are maps, owners are keyed by uid, finalizers are a set."""
