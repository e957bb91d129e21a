"""Admission for tests: reviews of pods, pools and GPUDevices, and what is known of a small fleet."""

from typing import Any, Literal

from gpuledger.edge.admission.cache import AdmissionCache, CacheProjection
from gpuledger.edge.admission.serving.review import CREATE, AdmissionRequest, Object, Requester
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
Said = tuple[str, Payload]
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


def log(*said: Said) -> list[Message]:
    """The log in which all of this was said, by whoever says such things."""
    numbers: dict[str, int] = {}
    messages = []
    for sequence, (subject, data) in enumerate(said, 1):
        source = SOURCES[data.PUBLISH_RULE.publishers[0]]
        numbers[source] = numbers.get(source, 0) + 1
        told = event(data, subject, number=numbers[source], at=sequence, source=source)
        messages.append(message(told, sequence))
    return messages


def known(*said: Said) -> AdmissionCache:
    """What is known once all of this was said."""
    state = folded(CacheProjection(), log(*said)).state
    assert isinstance(state, AdmissionCache)
    return state


def conditions(**statuses: bool) -> tuple[Condition, ...]:
    """Conditions of a pool: it is set up, but for what is given."""
    wanted = {"Supported": True, "Configured": True, "Misconfigured": False, "Maintenance": False} | statuses
    return tuple(
        Condition(type=kind, status="True" if holds else "False", reason="Tested", message="So it is.")
        for kind, holds in wanted.items()
    )


def pool(subject: str, total: int | None = 4, *, has: dict[str, bool] | None = None, **spec: Any) -> list[Said]:
    """A pool with that capacity."""
    defined = PoolDefined(uid="u", **{"unit": "Card", "include": {"pci_devices": ["2203"]}, **spec})
    return [(subject, defined), (subject, PoolChanged(total=total, conditions=conditions(**(has or {}))))]


def namespace(name: str = TEAM, *, enabled: bool = True) -> Said:
    """A namespace, open for GPUs."""
    return name, NamespaceObserved(uid="u", gpu_enabled=enabled)


def settings(**given: Any) -> Said:
    """The module's settings."""
    return "gpu-control-plane", SettingsChanged(**given)


def device(name: str = "d1", state: Prepared = "Ready", *, node: str = "n1", **detected: Any) -> list[Said]:
    """A GPUDevice in a node of zone a."""
    hardware = Hardware(uuid=f"GPU-{name}", pci_vendor="10de", pci_device="2203", product="NVIDIA A100")
    found = DeviceDetected(**{"hardware": hardware, "managed": True, "node": node, "card": name, **detected})
    ready = DeviceStateChanged(state=state, reason="Tested")
    return [(node, NodeLabelled(uid="u", labels={"zone": "a"})), (name, found), (name, ready)]


def assigned(name: str, to: str | None, phase: Phase = "Assigned", *, automatic: bool = False) -> Said:
    """A decision about whose the device is."""
    return name, DeviceAssignmentChanged(pool=to, phase=phase if to else None, automatic=automatic, reason="Tested")


def asking(*resources: str, amount: object = "1", spec: Json | None = None, **metadata: Any) -> Json:
    """A pod whose container asks for these resources."""
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
