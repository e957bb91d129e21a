"""Namespaces: which of them may use GPUs."""

from gpuledger.events.payload import Name, Payload
from gpuledger.events.publishing import BY_WATCHERS
from gpuledger.events.registry import registry


@registry.event("namespace", "observed", BY_WATCHERS)
class NamespaceObserved(Payload):
    """The namespace exists; `gpu_enabled` means that its label `gpu.deckhouse.io/enabled` is `true`."""

    uid: Name
    gpu_enabled: bool = False


@registry.event("namespace", "gone", BY_WATCHERS)
class NamespaceGone(Payload):
    """The namespace is gone."""

    uid: Name | None = None
