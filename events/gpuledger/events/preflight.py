"""Preflight checks of pods, and the gangs that go through some of them together.

Watchers record what they see of pods with injected checks; the service `preflight` records what it makes of a gang.
A pod's id is `<namespace>/<name>`, and a gang's `<namespace>/<gang id>`.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from gpuledger.events.payload import Count, Name, Payload, Text
from gpuledger.events.publishing import BY_WATCHERS, SourceKind, by_service
from gpuledger.events.registry import registry

CHECKS_MAX = 32
CODES_MAX = 16
PEERS_MAX = 4096

CheckState = Literal["waiting", "running", "ended"]
CheckOutcome = Literal["passed", "failed", "config-error", "gang-timeout", "not-reported", "skipped"]


class PreflightResult(Payload):
    """What a check writes about itself where Kubernetes keeps it: the container's termination message, as JSON.

    Bandwidths are bus bandwidths in GB/s (10^9 bytes); `gang_wait_s` is how long it waited for its gang.
    """

    outcome: CheckOutcome
    codes: Annotated[tuple[Name, ...], Field(max_length=CODES_MAX)] = ()
    message: Text = ""
    duration_s: Annotated[float, Field(ge=0, le=1e9)] | None = None
    gang_wait_s: Annotated[float, Field(ge=0, le=1e9)] | None = None
    bandwidth_gbps: Annotated[float, Field(ge=0, le=1e9)] | None = None
    threshold_gbps: Annotated[float, Field(ge=0, le=1e9)] | None = None


class PreflightCheck(Payload):
    """How far a check of a pod is. `name` is without the prefix of its container.

    `exit_code`, `reason` (Kubernetes' own, such as `Error` or `OOMKilled`) and the times are those of its last end, so
    a check that is tried again has them too; `attempt` counts from 0. `result` is None where it left none.
    """

    name: Name
    state: CheckState
    attempt: Count = 0
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    reason: Name | None = None
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    result: PreflightResult | None = None


@registry.event("pod", "preflight-observed", BY_WATCHERS, introduced=True)
class PodPreflightObserved(Payload):
    """A pod with injected checks, in their order, and its gang. Replaces the previous event.

    `gang`, `gang_source` and `gang_size` are what the webhook found (`api.preflight`); None: it belongs to no gang, or
    the pod does not say how many pods it has. `done` says that no check will run any more: all have passed, or the pod
    has ended.
    """

    uid: Name
    node: Name | None = None
    ip: Name | None = None
    gang: Name | None = None
    gang_source: Name | None = None
    gang_size: Annotated[int, Field(ge=1, le=PEERS_MAX)] | None = None
    checks: Annotated[tuple[PreflightCheck, ...], Field(max_length=CHECKS_MAX)] = ()
    done: bool = False


@registry.event("pod", "preflight-gone", BY_WATCHERS, introduced=True)
class PodPreflightGone(Payload):
    """The object of a pod with injected checks is gone."""

    uid: Name | None = None


_BY_PREFLIGHT = by_service(SourceKind.PREFLIGHT)


class GangPeer(Payload):
    """A pod of a gang that has an address, in the order of the pods' names, which is that of ranks."""

    pod: Name
    uid: Name
    ip: Name
    node: Name | None = None


@registry.event("gang", "configured", _BY_PREFLIGHT, introduced=True)
class GangConfigured(Payload):
    """The service has written the gang's ConfigMap so. Replaces the previous event.

    `expected` is how many pods the gang has, by its `source`, without those that `passed` before and go through no
    checks any more; `complete` says whether `peers` has all of them, and `waited_s` how long after its first pod had an
    address that was. `created` says whether the ConfigMap was new.
    """

    config_map: Name
    source: Name
    expected: Count
    passed: Count = 0
    peers: Annotated[tuple[GangPeer, ...], Field(max_length=PEERS_MAX)] = ()
    complete: bool = False
    created: bool = False
    waited_s: Annotated[float, Field(ge=0, le=1e9)] | None = None


@registry.event("gang", "timed-out", _BY_PREFLIGHT, introduced=True)
class GangTimedOut(Payload):
    """The gang was not complete in time; no hardware is to blame."""

    expected: Count
    found: Count
    waited_s: Annotated[float, Field(ge=0, le=1e9)]


@registry.event("gang", "not-configured", _BY_PREFLIGHT, introduced=True)
class GangNotConfigured(Payload):
    """The service cannot coordinate the gang, such as where a ConfigMap of that name is somebody else's."""

    reason: Name
    message: Text = ""


@registry.event("gang", "dissolved", _BY_PREFLIGHT, introduced=True)
class GangDissolved(Payload):
    """No pod of the gang is left; `removed` says whether its ConfigMap was deleted."""

    removed: bool = False
