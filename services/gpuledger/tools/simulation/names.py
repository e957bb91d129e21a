"""Names that the simulated fleet uses in a cluster: namespaces, field managers, labels and annotations of its pods."""

from typing import Final, NamedTuple

from gpuledger.api.kinds import Resource

DEMO_NAMESPACE: Final = "gpu-demo"
"""Where pods arrive. A pod that anybody creates here for a resource of the fleet runs as well."""

NFD_NAMESPACE: Final = "node-feature-discovery"
LEASE_NAMESPACE: Final = "kube-node-lease"

KUBELET: Final = "kubelet"
NFD: Final = "nfd-master"
SCHEDULER: Final = "gpuledger-simulation"
CONTROLLER: Final = "kube-controller-manager"
CONFIG_AGENT: Final = "machine-config-agent"
USERS: Final = "gpuledger-simulation-users"

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
TEAM: Final = "team"
DURATION: Final = "simulation.gpuledger.io/duration-seconds"
"""An annotation of pods: how many simulated seconds they run."""

OUTCOME: Final = "simulation.gpuledger.io/outcome"
"""An annotation of pods: the phase in which they end, unless one of their cards fails."""

FAILING_CHECKS: Final = "simulation.gpuledger.io/failing-checks"
"""An annotation of pods: the preflight checks that fail and their error codes, `nccl-loopback=NCCL_SYSTEM_ERROR`."""

PROVIDER: Final = "simulation://"
"""The prefix of simulated nodes' provider IDs."""

NOT_READY: Final = "node.kubernetes.io/not-ready"
"""The taint of nodes that have not been found ready yet."""

CONTAINER: Final = "main"
IMAGE: Final = "registry.k8s.io/pause:3.10"

LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)


class PodPlace(NamedTuple):
    """The namespace and name of a pod."""

    namespace: str
    name: str


def pod_in(namespace: str, name: str) -> str:
    """What the simulation calls a pod: its name alone in the demo namespace, else `<namespace>/<name>`."""
    return name if namespace == DEMO_NAMESPACE else f"{namespace}/{name}"


def place_of(pod: str) -> PodPlace:
    """Where a pod is that the simulation calls so."""
    namespace, slash, name = pod.rpartition("/")
    return PodPlace(namespace, name) if slash else PodPlace(DEMO_NAMESPACE, name)


def workload_of(pod: str) -> str:
    """The ledger's workload of a pod."""
    return "/".join(place_of(pod))


def pod_of(workload: str) -> str | None:
    """The pod of a ledger's workload; None for workloads that are no pods."""
    namespace, _, name = workload.partition("/")
    return pod_in(namespace, name) if namespace and name else None
