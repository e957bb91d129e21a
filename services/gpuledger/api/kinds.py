"""The kinds of Kubernetes objects that gpuledger reads and writes, and the objects that it owns by name.

Names are an interface to other people's clusters: each is written here and nowhere else. Data only, so that pure code
may import it.
"""

from typing import Final, NamedTuple


class Resource(NamedTuple):
    """Where a kind of object lives in the API. The core group is the empty string."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        """As objects give it: `v1`, `gpu.deckhouse.io/v1alpha1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """As `kubectl get` takes it: `nodes`, `gpudevices.gpu.deckhouse.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None) -> str:
        """The URL path of its collection, in one namespace or in all."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return f"{root}{within}/{self.plural}"


GPU_GROUP: Final = "gpu.deckhouse.io"
CLUSTER_GPU_GROUP: Final = "cluster.gpu.deckhouse.io"
"""Not an API group: the prefix of resources and annotations of cluster-wide pools."""

DECKHOUSE_GROUP: Final = "deckhouse.io"
NFD_GROUP: Final = "nfd.k8s-sigs.io"
MACHINE_CONFIG_GROUP: Final = "mco.in-cloud.io"
SCHEDULING_GROUP: Final = "scheduling.kooperator"
RESOURCE_STATUS_GROUP: Final = "resource.gpuledger.io"

GPU_DEVICES: Final = Resource(GPU_GROUP, "v1alpha1", "gpudevices", "GPUDevice")
GPU_NODE_STATES: Final = Resource(GPU_GROUP, "v1alpha1", "gpunodestates", "GPUNodeState")
GPU_POOLS: Final = Resource(GPU_GROUP, "v1alpha1", "gpupools", "GPUPool", namespaced=True)
CLUSTER_GPU_POOLS: Final = Resource(GPU_GROUP, "v1alpha1", "clustergpupools", "ClusterGPUPool")
MODULE_CONFIGS: Final = Resource(DECKHOUSE_GROUP, "v1alpha1", "moduleconfigs", "ModuleConfig")
MACHINE_CONFIGS: Final = Resource(MACHINE_CONFIG_GROUP, "v1alpha1", "machineconfigs", "MachineConfig")
MACHINE_CONFIG_POOLS: Final = Resource(MACHINE_CONFIG_GROUP, "v1alpha1", "machineconfigpools", "MachineConfigPool")
RENDERED_MACHINE_CONFIGS: Final = Resource(
    MACHINE_CONFIG_GROUP, "v1alpha1", "renderedmachineconfigs", "RenderedMachineConfig"
)
NODE_FEATURES: Final = Resource(NFD_GROUP, "v1alpha1", "nodefeatures", "NodeFeature", namespaced=True)
NODE_FEATURE_RULES: Final = Resource(NFD_GROUP, "v1alpha1", "nodefeaturerules", "NodeFeatureRule")
NODES: Final = Resource("", "v1", "nodes", "Node")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace")
PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
SECRETS: Final = Resource("", "v1", "secrets", "Secret", namespaced=True)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", namespaced=True)
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True)
JOBS: Final = Resource("batch", "v1", "jobs", "Job", namespaced=True)
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)
CRDS: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview")

RESOURCE_SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice")
RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True)
RESOURCE_CLAIM_TEMPLATES: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True
)
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass")
DEVICE_TAINT_RULES: Final = Resource("resource.k8s.io", "v1beta2", "devicetaintrules", "DeviceTaintRule")
OLDER_DEVICE_TAINT_RULES: Final = DEVICE_TAINT_RULES._replace(version="v1alpha3")
"""As Kubernetes before 1.36 serves them; of the same shape."""

RESOURCE_SLICE_STATUSES: Final = Resource(
    RESOURCE_STATUS_GROUP, "v1alpha1", "resourceslicestatuses", "ResourceSliceStatus"
)


def shared_devices(group: str = SCHEDULING_GROUP) -> Resource:
    """The kind that shows what a node shares; its group has the domain of shared devices."""
    return Resource(group, "v1alpha1", "devices", "Device")


FIELD_MANAGER: Final = "gpuledger"
"""Owns what the product writes; statuses and the labels that it keeps on GPUDevices."""

ASSIGNMENT_FIELD_MANAGER: Final = "gpuledger-auto-approval"
"""Owns the assignment annotation where a pool approves by itself, and nothing else of a user's metadata."""

OUR_MANAGERS: Final = frozenset({FIELD_MANAGER, ASSIGNMENT_FIELD_MANAGER})
"""All field managers of the product."""

EVENT_REPORTER: Final = "gpuledger"
MANAGED_BY: Final = "gpuledger"
"""The value of the label `app.kubernetes.io/managed-by` on DaemonSets that the product keeps."""

NAMESPACE: Final = "d8-gpu-operator"
CONTROLLER_TLS_SECRET: Final = "gpu-control-plane-controller-tls"  # noqa: S105 - the name of a secret
CA_SECRET: Final = "gpu-control-plane-ca"  # noqa: S105 - the name of a secret
PREFLIGHT_TLS_SECRET: Final = "gpuledger-preflight-tls"  # noqa: S105 - the name of a secret

LEDGER_CONFIG_MAP: Final = "gpuledger-ledger"
"""The ConfigMap that names the ledger which a cluster belongs to."""

LEDGER_CONFIG_MAP_NAMESPACE: Final = "kube-system"
"""Where it is in every cluster, whichever namespace gpuledger runs in."""

MODULE_CONFIG: Final = "gpu-control-plane"
NODE_FEATURE_RULE: Final = "deckhouse-gpu-kernel-os"
NFD_COVERAGE: Final = "gpu-nfd-coverage"
"""The Job and CronJob that compare the labels of nodes; a name of the CronJob that keeps one waiting begins so."""

NFD_VERSION_MIN: Final = (0, 17)

PRINTED_CATEGORY: Final = "gpu"
"""`kubectl get gpu` shows all kinds of this category."""
