"""Names that the simulated fleet uses in a cluster: namespaces, field managers, labels and annotations of its pods."""

from typing import Final

from gpuledger.api.kinds import Resource

DEMO_NAMESPACE: Final = "gpu-demo"
"""Where pods arrive. A pod that anybody creates here for a resource of the fleet runs as well."""

NFD_NAMESPACE: Final = "node-feature-discovery"
LEASE_NAMESPACE: Final = "kube-node-lease"

KUBELET: Final = "kubelet"
NFD: Final = "nfd-master"
SCHEDULER: Final = "gpuledger-simulation"
CONTROLLER: Final = "kube-controller-manager"
USERS: Final = "gpuledger-simulation-users"

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
TEAM: Final = "team"
DURATION: Final = "simulation.gpuledger.io/duration-seconds"
"""An annotation of pods: how many simulated seconds they run."""

OUTCOME: Final = "simulation.gpuledger.io/outcome"
"""An annotation of pods: the phase in which they end, unless one of their cards fails."""

PROVIDER: Final = "simulation://"
"""The prefix of simulated nodes' provider IDs."""

NOT_READY: Final = "node.kubernetes.io/not-ready"
"""The taint of nodes that have not been found ready yet."""

CONTAINER: Final = "main"
IMAGE: Final = "registry.k8s.io/pause:3.10"

LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)


def workload_of(pod: str) -> str:
    """The ledger's workload of a pod in the demo namespace."""
    return f"{DEMO_NAMESPACE}/{pod}"


def pod_of(workload: str) -> str | None:
    """The pod in the demo namespace of a ledger's workload; None for other workloads."""
    namespace, _, pod = workload.partition("/")
    return pod if namespace == DEMO_NAMESPACE and pod else None
