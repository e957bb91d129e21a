"""Streams of facts about shared devices and the pods that hold them, for properties and stories."""

from collections.abc import Iterable, Mapping
from typing import Final

from hypothesis import strategies as st

from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeGone
from gpuledger.events.payload import Payload
from gpuledger.events.runtime import GpuCheckpoint, NodeGpuCheckpointsObserved
from gpuledger.events.sharing import (
    AllocatedDevice,
    Allocation,
    NodeDevicesShared,
    PodDevicesBound,
    PodDevicesReleased,
    PodDevicesReserved,
    PodSharingGone,
    PodSharingObserved,
    SharedDevice,
)
from support.events import RecordedFact, event

DECIDER: Final = "/services/sharing"
EXTENDER: Final = "/services/extender"
POD_WATCHER: Final = "/watchers/sharing-pods"
NODE_WATCHER: Final = "/watchers/nodes"
TYPES: Final[tuple[type[Payload], ...]] = (
    NodeDevicesShared,
    PodSharingObserved,
    PodSharingGone,
    PodDevicesReserved,
    PodDevicesBound,
    PodDevicesReleased,
    NodeGpuCheckpointsObserved,
)
"""They are in force from the start of a log of tests."""

GIB: Final = 2**30
CARD_BYTES: Final = 16 * GIB
PODS: Final = {"u1": "ml/a", "u2": "ml/a", "u3": "ml/b"}
"""By uid; two objects have had one name."""


def gpu(minor: int, *, healthy: bool = True, memory: int = CARD_BYTES, id: str | None = None) -> SharedDevice:  # noqa: A002
    """A whole GPU."""
    resources = {"gpu-core": 100, "gpu-memory": memory, "gpu-memory-ratio": 100}
    return SharedDevice(type="gpu", minor=minor, id=id or f"GPU-{minor}", healthy=healthy, resources=resources)


def shared(*devices: SharedDevice, model: str = "H100") -> NodeDevicesShared:
    """What a node shares."""
    return NodeDevicesShared(devices=devices, model=model)


def share(minor: int, percent: int = 50) -> AllocatedDevice:
    """A part of a GPU."""
    resources = {"gpu-core": percent, "gpu-memory": CARD_BYTES * percent // 100, "gpu-memory-ratio": percent}
    return AllocatedDevice(minor=minor, id=f"GPU-{minor}", resources=resources)


def of_gpus(*shares: AllocatedDevice) -> Allocation:
    """An allocation of GPUs alone."""
    return {"gpu": shares}


def asked(percent: int = 50) -> Mapping[str, int]:
    """What a pod asks for that gets so much of a card."""
    return {"gpu-core": percent, "gpu-memory-ratio": percent}


_HOURS = st.integers(0, 9)
_UIDS = st.sampled_from(sorted(PODS))
_NODES = st.sampled_from(["n1", "n2"])
_allocations = st.lists(
    st.builds(share, st.integers(0, 2), st.sampled_from([25, 50])),
    min_size=1,
    max_size=2,
    unique_by=lambda one: one.minor,
).map(lambda shares: of_gpus(*shares))
_devices = st.lists(
    st.builds(gpu, st.integers(0, 2), healthy=st.booleans()), max_size=3, unique_by=lambda one: one.minor
)
_nodes = st.builds(
    RecordedFact,
    st.just(DECIDER),
    _NODES,
    _HOURS,
    st.builds(
        lambda devices, enabled, model: NodeDevicesShared(devices=tuple(devices), enabled=enabled, model=model),
        _devices,
        st.booleans(),
        st.sampled_from([None, "H100"]),
    ),
)
_ends = st.builds(RecordedFact, st.just(NODE_WATCHER), _NODES, _HOURS, st.just(NodeGone()))
_observed = st.builds(
    PodSharingObserved,
    uid=_UIDS,
    node=st.none() | _NODES,
    requests=st.just(dict(asked())),
    allocation=st.none() | _allocations,
    unreadable=st.sampled_from([None, "it is no JSON"]),
    started=st.booleans(),
)
_reserved = st.builds(
    PodDevicesReserved,
    uid=_UIDS,
    node=_NODES,
    requests=st.just(dict(asked())),
    allocation=_allocations,
    strategy=st.just("LeastAllocated"),
)
_released = st.builds(PodDevicesReleased, uid=_UIDS, node=_NODES, reason=st.just("BindingFailed"))
_bound = st.builds(PodDevicesBound, uid=_UIDS, node=_NODES)
_gone = st.builds(PodSharingGone, uid=_UIDS | st.none())


def _about_pod(source: str, at: int, data: Payload) -> RecordedFact:
    return RecordedFact(source, PODS.get(getattr(data, "uid", None) or "", "ml/b"), at, data)


_pods = st.builds(_about_pod, st.just(POD_WATCHER), _HOURS, _observed | _gone) | st.builds(
    _about_pod, st.just(EXTENDER), _HOURS, _reserved | _bound | _released
)


def _identity(fact: RecordedFact) -> tuple[object, ...]:
    """No two facts about one thing have one time, as only the order of recording would decide between them."""
    if fact.data.AGGREGATE == "node":
        return (fact.subject, fact.at, isinstance(fact.data, NodeGpuCheckpointsObserved))
    return (getattr(fact.data, "uid", None), fact.at)


def having(**uuids: str) -> NodeGpuCheckpointsObserved:
    """Pods, by UID, that each have a GPU of a node without an allocation."""
    found = (
        GpuCheckpoint(uid=uid, container="main", resource="nvidia.com/gpu", devices=(id_,))
        for uid, id_ in uuids.items()
    )
    return NodeGpuCheckpointsObserved(checkpoints=tuple(found))


_had = st.dictionaries(st.sampled_from([*PODS, "old"]), st.sampled_from(["GPU-0", "GPU-1", "GPU-8"]), max_size=2)
_checkpoints = _NODES.flatmap(
    lambda node: st.builds(
        RecordedFact, st.just(f"/nodes/{node}/agent"), st.just(node), _HOURS, _had.map(lambda had: having(**had))
    )
)

sharings = st.lists(_nodes | _ends | _pods | _checkpoints, max_size=24, unique_by=_identity)
"""What two nodes share, and what comes of three pods, two of one name; the facts need not be consistent."""


def story(*facts: tuple[str, float, Payload]) -> list[Decoded]:
    """Facts about subjects at hours, by whoever may say so, as events that each source numbers."""
    numbers: dict[str, int] = {}
    found = []
    for subject, at, data in facts:
        source = source_of(data)
        number = numbers[source] = numbers.get(source, 0) + 1
        found.append(event(data, subject, number=number, at=at, source=source))
    return found


def source_of(data: Payload) -> str:
    """Who may say so."""
    match data:
        case NodeDevicesShared():
            return DECIDER
        case NodeGpuCheckpointsObserved():
            return "/nodes/n1/agent"
        case NodeGone():
            return NODE_WATCHER
        case PodSharingObserved() | PodSharingGone():
            return POD_WATCHER
        case _:
            return EXTENDER


def observed(
    uid: str = "u1",
    *,
    node: str | None = None,
    allocation: Allocation | None = None,
    requests: Mapping[str, int] | None = None,
    started: bool = False,
) -> PodSharingObserved:
    """A pod as watchers see it."""
    return PodSharingObserved(
        uid=uid, node=node, requests=dict(requests or asked()), allocation=allocation, started=started
    )


def reserved(uid: str = "u1", *shares: AllocatedDevice, node: str = "n1") -> PodDevicesReserved:
    """A reservation of GPUs."""
    allocation = of_gpus(*(shares or (share(0),)))
    return PodDevicesReserved(
        uid=uid, node=node, requests=dict(asked()), allocation=allocation, strategy="LeastAllocated"
    )


def bound(uid: str = "u1", *, node: str = "n1") -> PodDevicesBound:
    """The end of a binding."""
    return PodDevicesBound(uid=uid, node=node)


def released(uid: str = "u1", *, node: str = "n1") -> PodDevicesReleased:
    """The end of a reservation."""
    return PodDevicesReleased(uid=uid, node=node, reason="BindingFailed")


def gone(uid: str | None = "u1") -> PodSharingGone:
    """The end of a pod."""
    return PodSharingGone(uid=uid)


def uids(events: Iterable[Decoded]) -> set[str]:
    """The pods that events are about."""
    return {uid for one in events if (uid := getattr(one.data, "uid", None)) is not None}


def lives(*ends: float) -> list[Decoded]:
    """A node, and pods that had half of its first card one after the other, up to these hours; another one goes on."""
    cards = shared(gpu(0), gpu(1), gpu(2))
    found: list[tuple[str, float, Payload]] = [("n1", 0, cards), ("n1", 0, having(old="GPU-2"))]
    at = 0.0
    for number, end in enumerate(ends):
        uid, middle = f"l{number}", (at + end) / 2
        pod = f"ml/{uid}"
        seen = observed(uid, node="n1", allocation=of_gpus(share(0)), started=True)
        found += [(pod, at, reserved(uid)), (pod, middle, seen), (pod, end, gone(uid))]
        at = end
    return story(*found, ("ml/last", at, observed("last", node="n1", allocation=of_gpus(share(1)))))
