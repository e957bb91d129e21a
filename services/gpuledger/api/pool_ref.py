"""Which pool: its kind, namespace and name, and what Kubernetes calls things after it.

The ledger names a pool by an id (`<namespace>/<name>`, or `<name>` for a ClusterGPUPool), pods by the extended resource
whose units they request, and GPUDevices by an annotation. Pure.
"""

from typing import NamedTuple

from gpuledger.api.kinds import CLUSTER_GPU_GROUP, CLUSTER_GPU_POOLS, GPU_GROUP, GPU_POOLS, Resource
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT


class PoolRef(NamedTuple):
    """A pool. A GPUPool has a namespace, a ClusterGPUPool has none."""

    name: str
    namespace: str = ""

    @classmethod
    def parse(cls, pool_id: str) -> "PoolRef":
        """The pool of this id."""
        namespace, _, name = pool_id.rpartition("/")
        return cls(name, namespace)

    @classmethod
    def of_resource(cls, resource: str, namespace: str) -> "PoolRef | None":
        """The pool whose units a pod of a namespace requests by an extended resource; None if it is not a pool's."""
        group, _, name = resource.partition("/")
        if group == GPU_GROUP:
            return cls(name, namespace)
        return cls(name) if group == CLUSTER_GPU_GROUP else None

    @property
    def id(self) -> str:
        """As the ledger names it."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def api_resource(self) -> Resource:
        """The API resource of its object."""
        return GPU_POOLS if self.namespace else CLUSTER_GPU_POOLS

    @property
    def kind(self) -> str:
        """The kind of its object."""
        return self.api_resource.kind

    @property
    def resource_name(self) -> str:
        """The extended resource with which pods request its units."""
        return f"{GPU_GROUP if self.namespace else CLUSTER_GPU_GROUP}/{self.name}"

    @property
    def assignment(self) -> dict[str, str]:
        """The annotation that gives a GPUDevice to it."""
        return {ANNOTATION_ASSIGNMENT if self.namespace else ANNOTATION_CLUSTER_ASSIGNMENT: self.name}

    @property
    def reference(self) -> dict[str, str]:
        """As the status of a GPUDevice refers to it."""
        return {"name": self.name} | ({"namespace": self.namespace} if self.namespace else {})

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"
