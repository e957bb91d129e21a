"""Desired DaemonSets of the components that prepare and monitor GPUs, according to the module's settings. Pure.

They run on managed nodes with GPUs, each if it is switched on, while the module is enabled. Node Feature Discovery
labels nodes with GPUs; where it may be absent the status writer does so from the inventory as well. Where somebody else
runs the components gpuledger has no DaemonSets.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Final

from gpuledger.api.kinds import MANAGED_BY
from gpuledger.api.labels import (
    COMPONENT_BY_APP,
    LABEL_APP,
    LABEL_DETECTED,
    LABEL_FALSE,
    LABEL_PRESENT,
    LABEL_TRUE,
)
from gpuledger.domain.inventory.state import ModuleSettings
from gpuledger.edge.kube.client import Selection
from gpuledger.edge.statuswriter.objects import DesiredObject, Document, Key, Kind
from gpuledger.runtime.settings import ComponentSettings

SWITCHES: Final[Mapping[str, str]] = {
    "validator": "validator_enabled",
    "gfd": "gfd_enabled",
    "dcgm": "dcgm_enabled",
    "dcgm-exporter": "dcgm_exporter_enabled",
}
"""The module's setting that switches each component on."""

SERVED_COMMAND: Final = ["nv-hostengine", "-n", "-b", "ALL", "-p", "5555"]
HOSTENGINE: Final = "nvidia-dcgm:5555"
"""The Service of the host engines, which leads a pod to that of its own node; the chart creates it."""

OURS: Final = {"app.kubernetes.io/managed-by": MANAGED_BY}


class Components:
    """The DaemonSets that gpuledger keeps, if `settings` say so; `manifests` are those that are shipped."""

    def __init__(self, settings: ComponentSettings, manifests: Sequence[Document]) -> None:
        self._settings = settings
        self._manifests = {one["metadata"]["name"]: one for one in manifests} if settings.manage else {}

    @property
    def are_kept(self) -> bool:
        """Whether gpuledger keeps any."""
        return bool(self._manifests)

    @property
    def label_nodes(self) -> bool:
        """Whether gpuledger labels the nodes that its components run on."""
        return self.are_kept and self._settings.label_nodes

    def selection(self) -> Selection:
        """Selects our objects."""
        labels = ",".join(f"{name}={value}" for name, value in OURS.items())
        return Selection(self._settings.namespace, labels)

    def every_key(self) -> list[Key]:
        """Every DaemonSet that gpuledger keeps or may have to delete."""
        return [Key(Kind.COMPONENT, name, self._settings.namespace) for name in self._manifests]

    def desired(self, module: ModuleSettings, key: Key) -> DesiredObject | None:
        """How a DaemonSet should be; None where there should be none."""
        manifest = self._manifests.get(key.name)
        if manifest is None or key.namespace != self._settings.namespace or not module.enabled:
            return None
        component = COMPONENT_BY_APP[key.name]
        if not getattr(module, SWITCHES[component]):
            return None
        spec = self._filled_in(manifest["spec"], component, module)
        return DesiredObject({"labels": {**OURS, LABEL_APP: key.name}, "spec": spec}, {})

    def _filled_in(self, shipped: Document, component: str, module: ModuleSettings) -> Document:
        spec: Document = deepcopy(shipped)
        pod = spec["template"]["spec"]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            container["image"] = self._settings.images[component]
        if self._settings.shared_hostengine:
            _share_hostengine(pod, component)
        pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": self._nodes(module)}}
        if self._settings.runtime_class:
            pod["runtimeClassName"] = self._settings.runtime_class
        if self._settings.pull_secrets:
            pod["imagePullSecrets"] = [{"name": name} for name in self._settings.pull_secrets]
        return spec

    def _nodes(self, module: ModuleSettings) -> Document:
        """Managed nodes with GPUs, by whichever label says so."""
        operator, value = ("NotIn", LABEL_FALSE) if module.enabled_by_default else ("In", LABEL_TRUE)
        managed = {"key": module.managed_label_key, "operator": operator, "values": [value]}
        labels = (LABEL_PRESENT, LABEL_DETECTED) if self._settings.label_nodes else (LABEL_PRESENT,)
        return {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": label, "operator": "Exists"}, managed]} for label in labels
            ]
        }


def _share_hostengine(pod: Document, component: str) -> None:
    """Move the host engine from its node's loopback into the network of pods, where a NetworkPolicy guards it."""
    (container,) = pod["containers"]
    if component == "dcgm":
        pod.update(hostNetwork=False, dnsPolicy="ClusterFirst")
        container["command"] = SERVED_COMMAND
        container["ports"] = [{"name": "hostengine", "containerPort": 5555, "protocol": "TCP"}]
        container["readinessProbe"] = {**container["readinessProbe"], "tcpSocket": {"port": 5555}}
    elif component == "dcgm-exporter":
        container["env"] = [
            {**one, "value": HOSTENGINE} if one["name"] == "DCGM_REMOTE_HOSTENGINE_INFO" else one
            for one in container["env"]
        ]


NO_COMPONENTS: Final = Components(ComponentSettings(), ())
