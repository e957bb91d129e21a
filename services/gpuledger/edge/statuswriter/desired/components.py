"""The DaemonSets of what prepares GPUs and watches over them, as the module's settings want them. Pure.

They run on managed nodes with GPUs only, and only those that are switched on, while the module is enabled. Elsewhere,
and where somebody else runs them, there are none of ours.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Final

from gpuledger.api.kinds import MANAGED_BY
from gpuledger.api.labels import COMPONENT_BY_APP, LABEL_APP, LABEL_FALSE, LABEL_PRESENT, LABEL_TRUE
from gpuledger.domain.inventory.state import ModuleSettings
from gpuledger.edge.kube.client import Selection
from gpuledger.edge.statuswriter.reconcile.decide import Desired, Document, Key, Kind
from gpuledger.runtime.settings import ComponentSettings

SWITCHES: Final[Mapping[str, str]] = {
    "validator": "validator_enabled",
    "gfd": "gfd_enabled",
    "dcgm": "dcgm_enabled",
    "dcgm-exporter": "dcgm_exporter_enabled",
}
"""Which of the module's settings switches a component on."""

OURS: Final = {"app.kubernetes.io/managed-by": MANAGED_BY}


class Components:
    """What is kept where `settings` say so; `manifests` are the DaemonSets that are shipped."""

    def __init__(self, settings: ComponentSettings, manifests: Sequence[Document]) -> None:
        self._settings = settings
        self._manifests = {one["metadata"]["name"]: one for one in manifests} if settings.manage else {}

    @property
    def are_kept(self) -> bool:
        """Whether anything is kept at all."""
        return bool(self._manifests)

    def selection(self) -> Selection:
        """The objects that are ours."""
        labels = ",".join(f"{name}={value}" for name, value in OURS.items())
        return Selection(self._settings.namespace, labels)

    def every(self) -> list[Key]:
        """Every DaemonSet that is kept, or may have to go."""
        return [Key(Kind.COMPONENT, name, self._settings.namespace) for name in self._manifests]

    def desired(self, module: ModuleSettings, key: Key) -> Desired | None:
        """How a DaemonSet has to be; None where there is to be none."""
        manifest = self._manifests.get(key.name)
        if manifest is None or key.namespace != self._settings.namespace or not module.enabled:
            return None
        component = COMPONENT_BY_APP[key.name]
        if not getattr(module, SWITCHES[component]):
            return None
        spec = self._filled_in(manifest["spec"], component, module)
        return Desired({"labels": {**OURS, LABEL_APP: key.name}, "spec": spec}, {})

    def _filled_in(self, shipped: Document, component: str, module: ModuleSettings) -> Document:
        spec: Document = deepcopy(shipped)
        pod = spec["template"]["spec"]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            container["image"] = self._settings.images[component]
        pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _managed(module)}}
        if self._settings.runtime_class:
            pod["runtimeClassName"] = self._settings.runtime_class
        if self._settings.pull_secrets:
            pod["imagePullSecrets"] = [{"name": name} for name in self._settings.pull_secrets]
        return spec


def _managed(module: ModuleSettings) -> Document:
    """Managed nodes with GPUs."""
    operator, value = ("NotIn", LABEL_FALSE) if module.enabled_by_default else ("In", LABEL_TRUE)
    managed = {"key": module.managed_label_key, "operator": operator, "values": [value]}
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": LABEL_PRESENT, "operator": "Exists"}, managed]}]}


NO_COMPONENTS: Final = Components(ComponentSettings(), ())
