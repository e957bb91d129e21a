"""The subject of a `why`: the claim or pod of the query, the pod's claims, unit requests and progress.

The current pod comes from Kubernetes, if the command may ask it. A past pod, or any without Kubernetes, comes from the
ledger, which holds less about pods.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.domain.dra.state import Availability
from gpuledger.domain.pools.pods import units_by_resource
from gpuledger.domain.pools.rows import PoolPod
from gpuledger.domain.preflight.pod_checks import PodChecks
from gpuledger.domain.sharing.rows import SharedPod
from gpuledger.edge.kube.client import Object
from gpuledger.edge.watchers.fields import FieldReader
from gpuledger.edge.watchers.resources.container_requests import ENDED
from gpuledger.edge.watchers.resources.pods import requests_of
from gpuledger.tools.cluster import KubeAccess
from gpuledger.tools.explain.consumers import claims_of
from gpuledger.tools.explain.pools import PodState

BY_OWNER: Final = "Only claims that were created for the pod are included; it may use others."


class WhyQuery(NamedTuple):
    """A claim or pod by `namespace/name`, and the time in question (None: now), which `moment` shows as text.

    `node` narrows the explanation to one node. Without `access` Kubernetes is not asked.
    """

    name: str
    at: datetime | None
    moment: str
    node: str | None
    access: KubeAccess | None

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.name.partition("/")[0]

    @property
    def live_access(self) -> KubeAccess | None:
        """How to read the current objects of Kubernetes; None in the past, which Kubernetes does not keep."""
        return self.access if self.at is None else None


class Scheduler(NamedTuple):
    """The scheduler's message about a pod that it has not placed."""

    reason: str
    message: str


class QueriedPod(NamedTuple):
    """A pod's claims by name, entries without a claim so far, and requested units of pools by resource.

    `provided` are DeviceClasses by the extended resources that they provide, for which no claim has been made yet.
    `gates` are the gates that the scheduler waits for; `object` is the Pod, where it was read from Kubernetes.
    """

    claims: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    units: Mapping[str, int] = {}
    state: PodState = PodState()
    gates: tuple[str, ...] = ()
    scheduler: Scheduler | None = None
    object: Object | None = None
    provided: Mapping[str, str] = {}


def pod_of(obj: Object) -> QueriedPod:
    """The pod as its object in Kubernetes has it."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    namespace, has = obj["metadata"]["namespace"], claims_of(obj)
    claims = dict.fromkeys(f"{namespace}/{claim}" for claim in has.claims.values())
    scheduled = _scheduled(status)
    is_placed = bool(spec.get("nodeName"))
    return QueriedPod(
        tuple(claims),
        has.missing,
        units=requests_of(spec, FieldReader()),
        state=_state_of(spec, status, scheduled),
        gates=() if is_placed else tuple(str(one["name"]) for one in spec.get("schedulingGates") or ()),
        scheduler=None if is_placed or scheduled.get("status") != "False" else _scheduler(scheduled),
        object=obj,
    )


def recorded_pod(name: str, state: Availability, row: PoolPod | None, problem: str) -> QueriedPod | None:
    """The pod as the ledger has it; None where it has nothing of it. `problem` is why Kubernetes was not asked."""
    namespace, _, owner = name.partition("/")
    rows = state.claim.rows.values()
    owned = sorted(row.claim for row in rows if row.owner == owner and row.claim.partition("/")[0] == namespace)
    if not owned and row is None:
        return None
    note = f"{BY_OWNER} Kubernetes was not asked: {problem}" if problem else BY_OWNER
    if row is None:
        return QueriedPod(tuple(owned), notes=(note,))
    bound = PodState(row.node, row.bound_at)
    return QueriedPod(tuple(owned), notes=(note,), units=units_by_resource(row), state=bound)


def recorded_with_checks(checks: PodChecks | None, problem: str) -> QueriedPod | None:
    """A pod of which the ledger has its preflight checks alone; None where it has none of them either."""
    if checks is None:
        return None
    notes = (f"Kubernetes was not asked: {problem}",) if problem else ()
    node = checks.latest[0].node
    return QueriedPod(notes=notes, state=PodState(node))


def recorded_with_shares(row: SharedPod | None, problem: str) -> QueriedPod | None:
    """A pod of which the ledger has its shared devices alone; None where it has none of them either."""
    if row is None:
        return None
    notes = (f"Kubernetes was not asked: {problem}",) if problem else ()
    return QueriedPod(notes=notes, state=PodState(row.observed_node))


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
    return datetime.fromisoformat(text) if text else None
