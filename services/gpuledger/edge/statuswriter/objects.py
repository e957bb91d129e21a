"""The objects that the status writer keeps: their kinds, their keys, and their desired and observed forms. Pure.

Only what the product owns of an object appears here; `fields.py` says what that is. Nothing here decides anything.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from gpuledger.api.kinds import (
    CLUSTER_GPU_POOLS,
    DAEMON_SETS,
    GPU_DEVICES,
    GPU_NODE_STATES,
    GPU_POOLS,
    MACHINE_CONFIG_POOLS,
    MODULE_CONFIGS,
    NODE_FEATURE_RULES,
    NODES,
    RENDERED_MACHINE_CONFIGS,
    RESOURCE_SLICE_STATUSES,
    Resource,
    shared_devices,
)
from gpuledger.api.sharing import SharingNames

Document = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON reads it."""


class Kind(StrEnum):
    """The kinds that the product keeps.

    Of a ModuleConfig it keeps its conditions, of pools the finalizer and the status, of MachineConfigPools the status,
    of Nodes two labels, the annotations of their configuration, and the resources that are shared.
    """

    DEVICE = "GPUDevice"
    NODE = "GPUNodeState"
    RULE = "NodeFeatureRule"
    MODULE = "ModuleConfig"
    SLICE = "ResourceSliceStatus"
    POOL = "GPUPool"
    CLUSTER_POOL = "ClusterGPUPool"
    COMPONENT = "DaemonSet"
    KUBE_NODE = "Node"
    SHARED = "Device"
    RENDERED_CONFIG = "RenderedMachineConfig"
    CONFIG_POOL = "MachineConfigPool"


POOL_KINDS: Final = (Kind.POOL, Kind.CLUSTER_POOL)

OWNED_KINDS: Final = (Kind.SLICE, Kind.SHARED)
"""Kinds whose objects others own, and that may go with these."""

USER_KINDS: Final = frozenset({Kind.MODULE, Kind.KUBE_NODE, Kind.CONFIG_POOL, *POOL_KINDS})
"""Kinds whose objects people, or kubelets, create and delete."""

RESOURCES: Final[Mapping[Kind, Resource]] = {
    Kind.DEVICE: GPU_DEVICES,
    Kind.NODE: GPU_NODE_STATES,
    Kind.RULE: NODE_FEATURE_RULES,
    Kind.MODULE: MODULE_CONFIGS,
    Kind.SLICE: RESOURCE_SLICE_STATUSES,
    Kind.POOL: GPU_POOLS,
    Kind.CLUSTER_POOL: CLUSTER_GPU_POOLS,
    Kind.COMPONENT: DAEMON_SETS,
    Kind.KUBE_NODE: NODES,
    Kind.SHARED: shared_devices(),
    Kind.RENDERED_CONFIG: RENDERED_MACHINE_CONFIGS,
    Kind.CONFIG_POOL: MACHINE_CONFIG_POOLS,
}
"""Where each kind is; that of shared devices under the domain of an installation that sets no other."""

NAMES: Final = SharingNames()
"""The names of shared devices in an installation that sets no other domain."""


def resource_of(kind: Kind, names: SharingNames = NAMES) -> Resource:
    """Where a kind is."""
    return shared_devices(names.group) if kind is Kind.SHARED else RESOURCES[kind]


class Key(NamedTuple):
    """Identifies an object; `namespace` is empty where its kind is cluster-scoped."""

    kind: Kind
    name: str
    namespace: str = ""

    @property
    def id(self) -> str:
        """Identifies the object among those of its kind: `<name>`, or `<namespace>/<name>`."""
        return object_id(self.name, self.namespace)


def object_id(name: str, namespace: str = "") -> str:
    """Identifies an object among those of its kind."""
    return f"{namespace}/{name}" if namespace else name


def key_of(kind: Kind, identity: str) -> Key:
    """The key of the object that has this id."""
    namespace, _, name = identity.rpartition("/")
    return Key(kind, name, namespace)


class DesiredObject(NamedTuple):
    """How an object should be. `main` is what the product owns outside the status.

    That is `labels`, `annotations`, `finalizers`, or `spec` and `ownerReferences`. `about` is the UID of the object
    that this one describes and goes with, or which configuration it is; an object about another one is replaced. `uid`
    names the one object that is meant, where another object of the same name is not ours. `approved` is the assignment
    annotation that a pool sets on a device that it approves automatically. `configured` is the UID of the Node that the
    annotations are for: another Node of the same name has none of them.
    """

    main: Document
    status: Document
    about: str | None = None
    uid: str | None = None
    approved: Document | None = None
    configured: str | None = None


class ObservedObject(NamedTuple):
    """What the cache keeps of an object in the API server: its identity, and digests of what the product owns.

    `changed_by` is the last field manager other than ours. `sent_main`, `sent_status` and `sent_approved` are digests
    of what was sent and what the server keeps differently: sending it again would change nothing. `about` is as in
    DesiredObject; `approved` is None where the annotation is missing. `generation` is that of the object's metadata.
    """

    uid: str
    version: str
    main: bytes
    status: bytes
    deleting: bool = False
    changed_by: str | None = None
    sent_main: bytes | None = None
    sent_status: bytes | None = None
    about: str | None = None
    approved: bytes | None = None
    sent_approved: bytes | None = None
    generation: int = 0
