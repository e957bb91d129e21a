"""Streams of facts about pods with preflight checks and their gangs, for properties."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from hypothesis import strategies as st

from gpuledger.events.envelope import Decoded
from gpuledger.events.payload import Payload
from gpuledger.events.preflight import (
    GangConfigured,
    GangDissolved,
    GangNotConfigured,
    GangPeer,
    GangTimedOut,
    PodPreflightGone,
    PodPreflightObserved,
    PreflightCheck,
    PreflightResult,
)
from support.events import RecordedFact, event, hour

WATCHER: Final = "/watchers/preflight-pods"
COORDINATOR: Final = "/services/preflight"
TYPES: Final[tuple[type[Payload], ...]] = (
    PodPreflightObserved,
    PodPreflightGone,
    GangConfigured,
    GangTimedOut,
    GangNotConfigured,
    GangDissolved,
)

PODS: Final = {"u1": "ml/w-0", "u2": "ml/w-0", "u3": "ml/w-1"}
"""By uid; two objects have had one name."""

_UIDS = st.sampled_from(sorted(PODS))
_HOURS = st.integers(0, 9)
_FAILED: Final = PreflightResult(outcome="failed", codes=("NVLINK_FAIL",), message="GPU 3: NVLink", duration_s=31.5)


def ended(
    name: str, attempt: int = 0, *, at: float = 0, exit_code: int = 0, result: PreflightResult | None = None
) -> PreflightCheck:
    """A check whose attempt ended at an hour, after half a minute."""
    ended_at = hour(at)
    return PreflightCheck(
        name=name,
        state="ended",
        attempt=attempt,
        exit_code=exit_code,
        reason="Error" if exit_code else "Completed",
        started_at=ended_at - timedelta(seconds=30),
        ended_at=ended_at,
        result=result,
    )


_results = (
    st.none()
    | st.just(_FAILED)
    | st.builds(
        PreflightResult,
        outcome=st.sampled_from(["passed", "gang-timeout", "skipped"]),
        gang_wait_s=st.none() | st.floats(0, 600),
        bandwidth_gbps=st.none() | st.floats(0, 400),
        threshold_gbps=st.none() | st.just(5.0),
    )
)
_ended = st.builds(
    lambda check, state, with_end: check if with_end else check.model_copy(update={"state": state, "exit_code": None}),
    st.builds(
        ended,
        st.just("dcgm-diag"),
        st.integers(0, 3),
        at=_HOURS,
        exit_code=st.sampled_from([0, 1, 3, 137]),
        result=_results,
    ),
    st.sampled_from(["waiting", "running", "ended"]),
    st.booleans(),
)
_going = st.builds(
    PreflightCheck,
    name=st.sampled_from(["dcgm-diag", "nccl-allreduce"]),
    state=st.sampled_from(["waiting", "running"]),
    attempt=st.integers(0, 3),
)
_observed = st.builds(
    PodPreflightObserved,
    uid=_UIDS,
    node=st.sampled_from([None, "n1", "n2"]),
    gang=st.sampled_from([None, "g"]),
    checks=st.lists(_ended | _going, max_size=2, unique_by=lambda one: one.name).map(tuple),
    done=st.booleans(),
)
_gone = st.builds(PodPreflightGone, uid=_UIDS | st.none())
_peers = st.integers(0, 2).map(
    lambda count: tuple(GangPeer(pod=f"w-{rank}", uid=f"u{rank}", ip=f"10.0.0.{rank}") for rank in range(count))
)
_gang_events = st.one_of(
    st.builds(
        GangConfigured,
        config_map=st.just("preflight-g"),
        source=st.just("label"),
        expected=st.integers(1, 2),
        peers=_peers,
        complete=st.booleans(),
        waited_s=st.none() | st.floats(0, 600),
    ),
    st.builds(GangTimedOut, expected=st.just(2), found=st.integers(0, 1), waited_s=st.just(600.0)),
    st.builds(GangNotConfigured, reason=st.just("Taken"), message=st.sampled_from(["", "it is somebody else's"])),
    st.builds(GangDissolved, removed=st.booleans()),
)


def _configured(found: int, *, waited_s: float | None) -> GangConfigured:
    """The gang `g` of two pods, of which so many are there."""
    peers = tuple(GangPeer(pod=f"w-{rank}", uid=f"u{rank}", ip=f"10.0.0.{rank}") for rank in range(found))
    return GangConfigured(
        config_map="preflight-g", source="label", expected=2, peers=peers, complete=found == 2, waited_s=waited_s
    )


def _about_pod(at: int, data: PodPreflightObserved | PodPreflightGone) -> RecordedFact:
    return RecordedFact(WATCHER, PODS.get(data.uid or "", "ml/w-1"), at, data)


def _identity(fact: RecordedFact) -> tuple[object, ...]:
    kind = fact.data.EVENT if fact.source == COORDINATOR else getattr(fact.data, "uid", None)
    return (fact.subject, kind, fact.at)


pod_facts = st.builds(_about_pod, _HOURS, _observed | _gone)
gang_facts = st.builds(RecordedFact, st.just(COORDINATOR), st.sampled_from(["ml/g", "ml/h"]), _HOURS, _gang_events)
gangs = st.lists(gang_facts, min_size=1, max_size=16, unique_by=_identity)
"""What comes of two gangs."""

preflights = st.lists(pod_facts | gang_facts, max_size=24, unique_by=_identity)
"""Observations of three pods, two of one name, and what comes of two gangs; they need not be consistent."""


def crash_loop(failures: int, *, uid: str = "u1", first: int = 1) -> list[Decoded]:
    """A pod whose second check fails so often before it passes; an attempt each hour, and then the pod's end."""
    passed = ended("dcgm-diag", at=0.2)

    def seen(at: float, check: PreflightCheck, *, done: bool = False) -> tuple[float, Payload]:
        return at, PodPreflightObserved(uid=uid, node="n1", gang="g", checks=(passed, check), done=done)

    facts = [seen(0.5, PreflightCheck(name="bandwidth", state="waiting"))]
    for attempt in range(failures):
        check = ended("bandwidth", attempt, at=attempt + 1, exit_code=1, result=_FAILED)
        facts.append(seen(attempt + 1, check))
    began = hour(failures + 2) - timedelta(seconds=30)
    running = PreflightCheck(name="bandwidth", state="running", attempt=failures, started_at=began)
    facts.append(seen(failures + 1.999, running))
    facts.append(seen(failures + 2, ended("bandwidth", failures, at=failures + 2), done=True))
    facts.append((failures + 3, PodPreflightGone(uid=uid)))
    return in_order(((PODS[uid], at, data) for at, data in facts), first=first)


def in_order(facts: Iterable[tuple[str, float, Payload]], *, first: int = 1) -> list[Decoded]:
    """Facts about subjects at hours, by whoever may say so, as events that each source numbers from `first` on."""
    return [
        event(data, subject, number=number, at=at, source=WATCHER if data.AGGREGATE == "pod" else COORDINATOR)
        for number, (subject, at, data) in enumerate(facts, first)
    ]


GANG_STORY: Final = in_order(
    [
        ("ml/g", 1, _configured(1, waited_s=None)),
        ("ml/g", 1.5, GangTimedOut(expected=2, found=1, waited_s=600.0)),
        ("ml/g", 1.75, _configured(2, waited_s=90.0)),
        ("ml/g", 3, GangDissolved(removed=True)),
        ("ml/g", 5, GangNotConfigured(reason="Taken", message="The ConfigMap is somebody else's")),
    ]
)
"""A gang that is complete too late and dissolved, and one of the same id that cannot be configured."""
