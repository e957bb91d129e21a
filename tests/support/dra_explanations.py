"""Clusters with dynamic resource allocation for tests, as watchers record them, and claims that request devices."""

from collections.abc import Iterable
from typing import Any

from gpuledger.domain.dra.candidates import ClusterDevices, SelectorInput
from gpuledger.domain.dra.fold import HANDLERS
from gpuledger.domain.dra.objects import LabelledNode
from gpuledger.domain.dra.placement import PendingClaim
from gpuledger.domain.dra.state import Availability
from gpuledger.domain.fact import Fact
from gpuledger.events.claim import Asked, ClaimAllocated, ClaimRequested, Constraint, Request, Result, Wish
from gpuledger.events.node import NodeLabelled
from gpuledger.events.reach import NodeReach
from gpuledger.events.slice import CounterSet, DeviceClassDefined, SliceDevice, SlicePublished, Taint
from gpuledger.tools.explain.dra import Explanation, explain
from gpuledger.tools.explain.dra_wording import answer_words
from support.events import RecordedFact, SubjectFact, numbered

WATCHERS = "/services/watchers"
DRIVER = "gpu.example.com"
CLASS = ("gpu", DeviceClassDefined(uid="u-gpu"))

"""A subject and a fact about it."""


def available(*facts: SubjectFact, classes: Iterable[SubjectFact] = (CLASS,)) -> Availability:
    """The state after these facts, an hour apart."""
    state = Availability()
    events = [RecordedFact(WATCHERS, subject, hour, data) for hour, (subject, data) in enumerate((*classes, *facts))]
    for sequence, event in enumerate(numbered(events), 1):
        HANDLERS[type(event.data)](state, Fact(event, sequence, 0), event.data)
    return state


def devices(*names: str, **same: Any) -> tuple[SliceDevice, ...]:
    """Devices that are alike but for their names."""
    return tuple(SliceDevice(name=name, **same) for name in names)


def slice_of(node: str, *offered: SliceDevice, **other: Any) -> SubjectFact:
    """The only slice of a node's pool; `other` overrides its fields."""
    given: dict[str, Any] = {
        "pool": node,
        "reach": NodeReach(node=node),
        "pool_generation": 1,
        "slice_count": 1,
    } | other
    name = given.pop("name", f"{node}-slice")
    return name, SlicePublished(uid=f"u-{name}", driver=given.pop("driver", DRIVER), devices=offered, **given)


def holding(claim: str, *where: str, driver: str = DRIVER, **other: Any) -> SubjectFact:
    """A claim that has devices, each `pool/device`."""
    results = tuple(
        Result(request="r", driver=driver, pool=pool, device=device, **other)
        for pool, _, device in (one.partition("/") for one in where)
    )
    return claim, ClaimAllocated(uid=f"u-{claim}", results=results)


def node(name: str, **labels: str) -> SubjectFact:
    """A node with labels."""
    return name, NodeLabelled(uid=f"u-{name}", labels={"kubernetes.io/hostname": name, **labels})


def wish(name: str = "gpu", count: int = 1, **other: Any) -> Wish:
    """One alternative of a request."""
    return Wish(name=name, device_class=other.pop("device_class", "gpu"), count=count, **other)


def requesting(*wishes: Wish, constraints: Iterable[Constraint] = ()) -> ClaimRequested:
    """A claim with a request for each alternative."""
    requests = tuple(Request(name=one.name, wishes=(one,)) for one in wishes)
    return ClaimRequested(uid="u-asking", requests=requests, constraints=tuple(constraints))


def selects_as_text(expression: str, offered: SelectorInput) -> bool | str:
    """Selectors for tests: `attribute=value` selects, and `attribute!` fails where a device lacks it."""
    if expression.endswith("!"):
        return expression[:-1] in offered.payload.attributes or f"no such key: {expression[:-1]}"
    name, _, value = expression.partition("=")
    return str(offered.payload.attributes.get(name)) == value


def explained(state: Availability, *claims: Asked, at: str | None = None) -> Explanation:
    """The explanation of pending claims, from a node or anywhere."""
    pending = [PendingClaim(f"ns/c{number}", requested) for number, requested in enumerate(claims)]
    seen: LabelledNode | None = None if at is None else state.node(at)
    return explain(ClusterDevices(state, selects_as_text), pending, seen)


def words(*facts: SubjectFact, claim: ClaimRequested, at: str | None = None) -> str:
    """The current answer for a claim in a cluster with these facts."""
    return answer_words(explained(available(*facts), claim, at=at), "now")


BAD = Taint(key="bad", value="yes", effect="NoSchedule")
"""A taint that blocks."""

SLICE = slice_of("w1", *devices("gpu-0", "gpu-1", "gpu-2"))
"""Three devices of a node."""

PARTS = (
    slice_of("w1", name="counters", counter_sets=(CounterSet(name="mem", counters={"gi": "8"}),), slice_count=2),
    slice_of("w1", *devices("half-0", "half-1", consumes={"mem": {"gi": "4"}}),
             SliceDevice(name="whole", consumes={"mem": {"gi": "8"}}), slice_count=2),
)  # fmt: skip
"""A device of a node in parts: either both halves or the whole can be allocated."""
