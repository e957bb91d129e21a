"""The names under which the simulated fleet acts in a cluster: namespaces, field managers, marks on its pods."""

from typing import Final

from gpuledger.api.kinds import Resource

DEMO_NAMESPACE: Final = "gpu-demo"
"""Where pods arrive. Whoever creates a pod here that asks for a resource of the fleet has it run as well."""

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
"""An annotation of pods: for how many simulated seconds they run."""

OUTCOME: Final = "simulation.gpuledger.io/outcome"
"""An annotation of pods: the phase that they end in, unless a card of theirs fails."""

PROVIDER: Final = "simulation://"
"""What the provider IDs of simulated nodes begin with."""

NOT_READY: Final = "node.kubernetes.io/not-ready"
"""The taint of nodes that have not been found ready yet."""

CONTAINER: Final = "main"
IMAGE: Final = "registry.k8s.io/pause:3.10"

LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)


def workload_of(pod: str) -> str:
    """The workload in the ledger that a pod of the demo namespace is."""
    return f"{DEMO_NAMESPACE}/{pod}"


def pod_of(workload: str) -> str | None:
    """The pod of the demo namespace that a workload in the ledger is; None where it is something else."""
    namespace, _, pod = workload.partition("/")
    return pod if namespace == DEMO_NAMESPACE and pod else None
