"""ResourceClaims: who requests devices, and who holds them. Quantities are in the canonical form of Kubernetes."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from gpuledger.events.payload import Count, Name, Payload, Text
from gpuledger.events.publishing import BY_WATCHERS
from gpuledger.events.reach import NodeReach
from gpuledger.events.registry import registry
from gpuledger.events.slice import Amounts

REQUESTS_MAX = 32
RESULTS_MAX = 32
SELECTORS_MAX = 32
TOLERATIONS_MAX = 16
ALTERNATIVES_MAX = 8
EXPRESSION_LENGTH_MAX = 10_240

Expression = Annotated[str, StringConstraints(max_length=EXPRESSION_LENGTH_MAX)]


class Toleration(Payload):
    """A taint that the request tolerates; without a key it tolerates all, without an effect every effect."""

    key: Name | None = None
    operator: Name = "Equal"
    value: Text | None = None
    effect: Name | None = None


class Wish(Payload):
    """One request, or one alternative of it. `mode` says how many devices: `count`, or all that exist."""

    name: Name
    device_class: Name
    mode: Literal["ExactCount", "All"] = "ExactCount"
    count: Count = 1
    admin_access: bool = False
    selectors: Annotated[tuple[Expression, ...], Field(max_length=SELECTORS_MAX)] = ()
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=TOLERATIONS_MAX)] = ()
    capacity: Amounts = {}


class Request(Payload):
    """One request of a claim: the first alternative that is available. Most have only one, of the same name."""

    name: Name
    wishes: Annotated[tuple[Wish, ...], Field(max_length=ALTERNATIVES_MAX)] = ()


class Constraint(Payload):
    """The devices of these requests (empty: of all requests) must agree in an attribute, or differ in it."""

    requests: Annotated[tuple[Name, ...], Field(max_length=REQUESTS_MAX)] = ()
    match_attribute: Name | None = None
    distinct_attribute: Name | None = None


class Result(Payload):
    """A device allocated for a request. With a `share` it is shared, and `consumed` is what the share takes."""

    request: Name
    driver: Name
    pool: Name
    device: Name
    admin_access: bool = False
    share: Name | None = None
    consumed: Amounts = {}


class Asked(Payload):
    """The spec of a claim; `owner` is the pod that it was created for."""

    uid: Name
    requests: Annotated[tuple[Request, ...], Field(max_length=REQUESTS_MAX)] = ()
    constraints: Annotated[tuple[Constraint, ...], Field(max_length=REQUESTS_MAX)] = ()
    owner: Name | None = None


@registry.event("claim", "requested", BY_WATCHERS)
class ClaimRequested(Asked):
    """The claim requests devices and holds none."""


@registry.event("claim", "allocated", BY_WATCHERS)
class ClaimAllocated(Asked):
    """The claim holds these devices, usable on the nodes in `reach`; it replaces what it held before."""

    results: Annotated[tuple[Result, ...], Field(max_length=RESULTS_MAX)] = ()
    reach: NodeReach | None = None


@registry.event("claim", "released", BY_WATCHERS)
class ClaimReleased(Payload):
    """The claim is gone and holds nothing."""

    uid: Name | None = None
