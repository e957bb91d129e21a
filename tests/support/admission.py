"""Admission for tests: reviews of pods, pools and GPUDevices, and the cache of a small fleet."""

from typing import Any, Literal

from gpuledger.edge.admission.cache import AdmissionCache, CacheProjection
from gpuledger.edge.webhooks.serving.review import CREATE, AdmissionRequest, Object, Requester
from gpuledger.events.device import (
    DeviceAssignmentChanged,
    DeviceDetected,
    DeviceStateChanged,
    Hardware,
)
from gpuledger.events.namespace import NamespaceObserved
from gpuledger.events.node import Condition, NodeLabelled
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolChanged, PoolDefined
from gpuledger.events.settings import SettingsChanged
from gpuledger.ledger.api import Message
from support.events import event, folded, message

Json = dict[str, Any]
RecordedFact = tuple[str, Payload]
Prepared = Literal["Discovered", "Validating", "Ready", "Faulted"]
Phase = Literal["Pending", "Assigned", "Unassigning"]

TEAM = "gpu-team-a"
USER = Requester("alice", frozenset({"devs"}))
MASTER = Requester("admin", frozenset({"system:masters"}))
PRODUCT = Requester(
    "system:serviceaccount:d8-gpu-operator:gpuledger", frozenset({"system:serviceaccounts:d8-gpu-operator"})
)

SOURCES = {"watchers": "/watchers/all", "pools": "/services/pools", "bootstrap": "/services/bootstrap"}
SOURCES |= {"inventory": "/services/inventory"}


def log(*facts: RecordedFact) -> list[Message]:
    """The log of these facts, each by a publisher that may publish it."""
    numbers: dict[str, int] = {}
    messages = []
    for sequence, (subject, data) in enumerate(facts, 1):
        source = SOURCES[data.PUBLISH_RULE.publishers[0]]
        numbers[source] = numbers.get(source, 0) + 1
        new_event = event(data, subject, number=numbers[source], at=sequence, source=source)
        messages.append(message(new_event, sequence))
    return messages


def cached(*facts: RecordedFact) -> AdmissionCache:
    """The cache that has folded these facts."""
    state = folded(CacheProjection(), log(*facts)).state
    assert isinstance(state, AdmissionCache)
    return state


def conditions(**statuses: bool) -> tuple[Condition, ...]:
    """Conditions of a pool: it is set up, but for what is given."""
    statuses_by_type = {"Supported": True, "Configured": True, "Misconfigured": False, "Maintenance": False} | statuses
    return tuple(
        Condition(type=kind, status="True" if holds else "False", reason="Tested", message="So it is.")
        for kind, holds in statuses_by_type.items()
    )


def pool(subject: str, total: int | None = 4, *, has: dict[str, bool] | None = None, **spec: Any) -> list[RecordedFact]:
    """A pool with that capacity."""
    defined = PoolDefined(uid="u", **{"unit": "Card", "include": {"pci_devices": ["2203"]}, **spec})
    return [(subject, defined), (subject, PoolChanged(total=total, conditions=conditions(**(has or {}))))]


def namespace(name: str = TEAM, *, enabled: bool = True) -> RecordedFact:
    """A namespace, open for GPUs."""
    return name, NamespaceObserved(uid="u", gpu_enabled=enabled)


def settings(**given: Any) -> RecordedFact:
    """The module's settings."""
    return "gpu-control-plane", SettingsChanged(**given)


def device(name: str = "d1", state: Prepared = "Ready", *, node: str = "n1", **detected: Any) -> list[RecordedFact]:
    """A GPUDevice in a node of zone a."""
    hardware = Hardware(uuid=f"GPU-{name}", pci_vendor="10de", pci_device="2203", product="NVIDIA A100")
    found = DeviceDetected(**{"hardware": hardware, "managed": True, "node": node, "card": name, **detected})
    ready = DeviceStateChanged(state=state, reason="Tested")
    return [(node, NodeLabelled(uid="u", labels={"zone": "a"})), (name, found), (name, ready)]


def assigned(name: str, to: str | None, phase: Phase = "Assigned", *, automatic: bool = False) -> RecordedFact:
    """A decision about whose the device is."""
    return name, DeviceAssignmentChanged(pool=to, phase=phase if to else None, automatic=automatic, reason="Tested")


def pod_with(*resources: str, amount: object = "1", spec: Json | None = None, **metadata: Any) -> Json:
    """A pod whose container requests these resources."""
    container = {"name": "c", "image": "i", "resources": {"limits": dict.fromkeys(resources, amount)}}
    return {"metadata": {"name": "p", **metadata}, "spec": {"containers": [container], **(spec or {})}}


def review(
    plural: str,
    new: Object | None = None,
    old: Object | None = None,
    *,
    operation: str = CREATE,
    within: str = TEAM,
    user: Requester = USER,
) -> AdmissionRequest:
    """A question about one object."""
    shown = new or old or {}
    name = str(shown.get("metadata", {}).get("name", ""))
    return AdmissionRequest("u1", operation, plural, name, within, user, new or {}, old or {})
