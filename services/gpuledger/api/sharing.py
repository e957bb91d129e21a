"""The names of shared GPUs (seed 002): resources, annotations and labels. Pure.

All of them contain the domain of one setting, so code works with short names (`gpu-core`) and only what touches
Kubernetes objects asks `SharingNames` for the full ones (`kooperator/gpu-core`).
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple

DOMAIN: Final = "kooperator"
"""The domain of an installation that sets no other."""

SCHEDULER: Final = "gpuledger-scheduler"
"""The `schedulerName` of the scheduler that comes with an installation, where that sets no other."""

NVIDIA_GPU: Final = "nvidia.com/gpu"
"""The one resource whose name has no domain of ours: whole GPUs, as NVIDIA's device plugin names them."""

GPU: Final = "gpu"
"""A type of device, and the resource that asks for a percentage of one of them, or whole ones."""

RDMA: Final = "rdma"
GPU_CORE: Final = "gpu-core"
GPU_MEMORY: Final = "gpu-memory"
"""Bytes; the other resources are percentages of a device."""

GPU_MEMORY_RATIO: Final = "gpu-memory-ratio"
GPU_SHARED: Final = "gpu.shared"
"""On how many GPUs a request is spread."""

WHOLE: Final = 100
"""The percentage that is a whole device."""


class Strategy(StrEnum):
    """How nodes and devices are chosen among those that fit. `MINOR_ORDER` gives no scores (the seed's rule)."""

    MINOR_ORDER = "MinorOrder"
    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    FRAGMENTATION = "FragmentationGradientDescent"
    """Where a placement adds least to the GPUs that pods of the expected mix cannot use (Weng et al., 2023)."""


class SharingNames(NamedTuple):
    """The full names under one domain, and two names of an installation.

    `scheduler` places pods on shared devices, None: no scheduler of its own; `account` is the user that writes their
    annotations, None: any of the product.
    """

    domain: str = DOMAIN
    scheduler: str | None = None
    account: str | None = None

    def resource(self, short: str) -> str:
        """The extended resource: `kooperator/gpu-core`; `nvidia.com/gpu` is as it is."""
        return short if short == NVIDIA_GPU else f"{self.domain}/{short}"

    def short(self, resource: str) -> str | None:
        """The short name of a resource that a pod may ask for; None if it is none of ours."""
        if resource == NVIDIA_GPU:
            return NVIDIA_GPU
        prefix = f"{self.domain}/"
        return resource.removeprefix(prefix) if resource.startswith(prefix) else None

    @property
    def group(self) -> str:
        """The API group of Device objects."""
        return f"scheduling.{self.domain}"

    @property
    def allocated(self) -> str:
        """The annotation of pods with their DeviceAllocations, which the scheduler writes before the binding."""
        return f"scheduling.{self.domain}/device-allocated"

    @property
    def allocate_hint(self) -> str:
        """The annotation of pods with hints by type of device."""
        return f"scheduling.{self.domain}/device-allocate-hint"

    @property
    def joint_allocate(self) -> str:
        """The annotation of pods whose devices of several types are to be near each other."""
        return f"scheduling.{self.domain}/device-joint-allocate"

    @property
    def partition_spec(self) -> str:
        """The annotation of pods that need a partition of linked GPUs."""
        return f"scheduling.{self.domain}/gpu-partition-spec"

    @property
    def partitions(self) -> str:
        """The annotation of Devices with their partition table."""
        return f"scheduling.{self.domain}/gpu-partitions"

    @property
    def checkpoints(self) -> str:
        """The annotation of Devices with what pods hold that ran before sharing came (the seed's hot update)."""
        return f"node.{self.domain}/gpu-checkpoints"

    @property
    def partition_policy(self) -> str:
        """The label of nodes that says whether requests must fit a partition: `Honor` or `Prefer`."""
        return f"node.{self.domain}/gpu-partition-policy"

    @property
    def gpu_model(self) -> str:
        """The label of nodes with the model of their GPUs."""
        return f"node.{self.domain}/gpu-model"

    @property
    def sharing(self) -> str:
        """The label of nodes whose cards are offered for sharing: `enabled`, and no pool or DRA driver has them."""
        return f"node.{self.domain}/gpu-sharing"


DEFAULT_NAMES: Final = SharingNames()
"""The names of an installation that sets no domain."""

SHARING_ENABLED: Final = "enabled"
"""The value of `SharingNames.sharing` that gives a node's cards to sharing."""

_LABEL_VALUE_MAX: Final = 63
_NOT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9._-]+")


def label_value(text: str) -> str:
    """A text as a Kubernetes label may have it, as GPU feature discovery writes a model: `NVIDIA-H100-80GB-HBM3`."""
    return _NOT_IN_LABELS.sub("-", text)[:_LABEL_VALUE_MAX].strip("-._")
