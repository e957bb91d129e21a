"""The pod that is asked about: which claims it has, which units it asks for, and how far it is.

Now Kubernetes tells it, where it is asked. In the past, and without it, the ledger does, which knows less of pods.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.api.kinds import PODS
from gpuledger.cli.cluster import parsed
from gpuledger.domain.dra.fold import Availability
from gpuledger.domain.pools.pods import units_by_resource
from gpuledger.domain.pools.rows import PoolPod
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.edge.watchers.problems import Problems
from gpuledger.edge.watchers.resources.pods import ENDED
from gpuledger.edge.watchers.resources.requests import requests_of
from gpuledger.tools.explain.pools import PodState

BY_OWNER: Final = (
    "The claims are those that the ledger knows as made for the pod; others that it may use are not among them."
)


class Scheduler(NamedTuple):
    """What the scheduler says of a pod that it has not placed."""

    reason: str
    message: str


class AskedPod(NamedTuple):
    """A pod's claims by name, entries for which no claim was made yet, and units of pools by resource.

    `gates` are those that the scheduler waits for; `object` is the Pod where Kubernetes told of it.
    """

    claims: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    units: Mapping[str, int] = {}
    state: PodState = PodState()
    gates: tuple[str, ...] = ()
    scheduler: Scheduler | None = None
    object: Object | None = None


async def pod_now(client: KubeClient, name: str) -> Object | None:
    """The Pod; None where there is none."""
    namespace, _, bare = name.partition("/")
    try:
        return await client.get(PODS, bare, namespace)
    except NotFoundError:
        return None


def pod_of(obj: Object) -> AskedPod:
    """What a Pod says of itself."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    claims, missing = _claims_of(obj)
    scheduled = _scheduled(status)
    is_placed = bool(spec.get("nodeName"))
    return AskedPod(
        claims,
        missing,
        units=requests_of(spec, Problems()),
        state=_state_of(spec, status, scheduled),
        gates=() if is_placed else tuple(str(one["name"]) for one in spec.get("schedulingGates") or ()),
        scheduler=None if is_placed or scheduled.get("status") != "False" else _scheduler(scheduled),
        object=obj,
    )


def pod_known(name: str, state: Availability, told: PoolPod | None, problem: str) -> AskedPod | None:
    """What the ledger knows of a pod; None where that is nothing. `problem` is why Kubernetes says nothing."""
    namespace, _, owner = name.partition("/")
    rows = state.claim.rows.values()
    owned = sorted(row.claim for row in rows if row.owner == owner and row.claim.partition("/")[0] == namespace)
    if not owned and told is None:
        return None
    note = f"{BY_OWNER} Kubernetes was not asked: {problem}" if problem else BY_OWNER
    if told is None:
        return AskedPod(tuple(owned), notes=(note,))
    bound = PodState(told.node, told.bound_at)
    return AskedPod(tuple(owned), notes=(note,), units=units_by_resource(told), state=bound)


def _claims_of(pod: Object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The claims that a Pod names, or that were made from its templates; and entries that have none yet."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    made = {one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or ()}
    namespace, found, missing = pod["metadata"]["namespace"], [], []
    for one in spec.get("resourceClaims") or ():
        claim = one.get("resourceClaimName") or made.get(one["name"])
        if claim:
            found.append(f"{namespace}/{claim}")
        elif one["name"] not in made:  # made without a claim: none is needed
            missing.append(str(one["name"]))
    return tuple(dict.fromkeys(found)), tuple(missing)


def _state_of(spec: Mapping[str, Any], status: Mapping[str, Any], scheduled: Mapping[str, Any]) -> PodState:
    phase, node = status.get("phase"), spec.get("nodeName") or None
    if phase in ENDED:
        return PodState(node, ended=": ".join(filter(None, (phase, status.get("reason")))))
    since = _time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None
    running = None if phase is None else phase == "Running"
    return PodState(node, None if node is None else since or _time(status.get("startTime")), running=running)


def _scheduled(status: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = status.get("conditions") or ()
    return next((one for one in conditions if one.get("type") == "PodScheduled"), {})


def _scheduler(condition: Mapping[str, Any]) -> Scheduler:
    return Scheduler(str(condition.get("reason") or ""), str(condition.get("message") or ""))


def _time(text: str | None) -> datetime | None:
    return parsed(text) if text else None
