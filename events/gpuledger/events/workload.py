"""Workloads: jobs that request GPUs, get them and release them. Amounts are thousandths of a GPU."""

from typing import Annotated

from pydantic import Field

from gpuledger.events.payload import Count, Name, Payload
from gpuledger.events.publishing import BY_IMPORTERS
from gpuledger.events.registry import registry

DEVICES_PER_WORKLOAD_MAX = 4096


class DeviceShare(Payload):
    """How much of one device a workload holds."""

    device: Name
    gpu_milli: Count


@registry.event("workload", "submitted", BY_IMPORTERS)
class WorkloadSubmitted(Payload):
    """The workload requests GPUs; `workload_class` is the cluster's class of service (such as a pod's QoS)."""

    gpu_milli: Count
    owner: Name | None = None
    workload_class: Name | None = None
    cpu_milli: Count | None = None
    memory_mib: Count | None = None


@registry.event("workload", "scheduled", BY_IMPORTERS)
class WorkloadScheduled(Payload):
    """The workload holds GPUs from now on; without `devices` only the amount is known."""

    gpu_milli: Count
    node: Name | None = None
    devices: Annotated[tuple[DeviceShare, ...], Field(max_length=DEVICES_PER_WORKLOAD_MAX)] = ()


@registry.event("workload", "ended", BY_IMPORTERS)
class WorkloadEnded(Payload):
    """The workload ended and released its GPUs; `outcome` is its last phase."""

    outcome: Name | None = None
