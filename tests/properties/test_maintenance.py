"""However the requests of several owners interleave, a node is set aside exactly while somebody asks for it."""

from collections.abc import Sequence
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.domain.maintenance.lapses import INTENT_AGE_MAX
from gpuledger.domain.maintenance.state import isolation_of
from gpuledger.events.maintenance import (
    NodeIsolationChanged,
    NodeIsolationSuperseded,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
)
from gpuledger.events.node import NodeGone
from gpuledger.events.payload import Payload
from gpuledger.projection.fold import Fold
from support.events import GENERATION, rows_of
from support.maintenance import OWN, MaintenanceLog, applied, at, observed, released, requested

NODES, OWNERS = ("n1", "n2"), ("operators/ada", "operators/ben", "services/health")
TAINT = {"key": "gpu/broken", "effect": "NoSchedule"}

UNDECIDED: dict[str, Any] = {"decided_at": None, "standing": "", "has_lapsed": False, "drain_result": ""}
"""What became of a request follows from decisions, which stand in the order of the log."""

owners = st.sampled_from(OWNERS)
asks = st.builds(
    requested, owners, cordon=st.booleans(), taints=st.sampled_from([[], [TAINT], [{**TAINT, "value": "x"}]])
)
draining = st.builds(requested, owners, drain=st.sampled_from([{}, {"mode": "Immediate"}]))
expiring = st.builds(requested, owners, expires=st.integers(1, 40).map(at))
facts = st.one_of(
    asks, draining, expiring, owners.map(released), st.sampled_from([observed("u1"), observed("u2"), NodeGone()])
)
Step = tuple[str, Payload, int]
steps = st.tuples(st.sampled_from(NODES), facts, st.integers(0, 3))


def play(story: Sequence[Step], *, late: bool) -> MaintenanceLog:
    """Record the facts a second apart, some of them late, look at the clock in between, and settle every intent."""
    log = MaintenanceLog()
    for second, (node, data, delay) in enumerate(story, 1):
        decided = [*log.record(node, data, max(0, second - delay * late)), *log.pass_time(second)]
        for intent in decided:
            if "isolation-changed" in intent.type:
                log.record(intent.subject, applied(intent), second)
    return log


def in_force(story: Sequence[Step], node: str, now_s: int) -> dict[str, bool]:
    """By owner: whether a request in force wants a cordon; as anybody would say who reads the story."""
    held: dict[str, bool] = {}
    ends: dict[str, float | None] = {}
    for second, (name, data, _) in enumerate(story, 1):
        for owner, end in list(ends.items()):
            if end is not None and end <= second - 1:
                held.pop(owner, None)
        if name != node or not isinstance(data, NodeMaintenanceRequested | NodeMaintenanceReleased):
            continue
        held.pop(data.owner, None)
        ends.pop(data.owner, None)
        if isinstance(data, NodeMaintenanceRequested):
            held[data.owner] = data.cordon
            ends[data.owner] = None if data.expires is None else (data.expires - at(0)).total_seconds()
    return {owner: cordon for owner, cordon in held.items() if (end := ends[owner]) is None or end > now_s}


@given(st.lists(steps, max_size=25))
def test_a_node_is_cordoned_exactly_while_somebody_asks(story: list[Step]) -> None:
    log = play(story, late=False)
    for node in NODES:
        found, held = log.state.isolation.get(node), in_force(story, node, len(story))
        existing = log.state.node.get(node)
        assert {row.owner for row in log.state.requests_about(node)} == set(held)
        if existing is None or existing.uid is None:
            assert found is None
        else:
            assert (found is not None and isolation_of(found.isolation).unschedulable) == any(held.values())


@given(st.lists(steps, max_size=25), st.booleans())
def test_a_replay_decides_the_same(story: list[Step], late: bool) -> None:
    log = play(story, late=late)
    again = Fold(MaintenanceProjection(), GENERATION, numbering=OWN)
    again.apply_all(log.messages())
    assert rows_of(again) == rows_of(log.fold)
    assert not again.outstanding()


@given(st.lists(steps, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_requests_in_force_follow_from_the_facts_and_not_from_their_order(story: list[Step], chance: object) -> None:
    timed = [(second, step) for second, step in enumerate(story, 1)]
    other = sorted(timed, key=lambda _: chance.random())  # type: ignore[attr-defined]
    found = []
    for order in (timed, other):
        log = MaintenanceLog()
        for second, (node, data, _) in order:
            log.record(node, data, second)
        requests = {node: log.state.requests_about(node) for node in NODES}
        found.append({node: [row._replace(**UNDECIDED) for row in rows] for node, rows in requests.items()})
    assert found[0] == found[1]


@given(st.lists(steps, max_size=25), st.booleans())
def test_a_node_is_drained_exactly_for_those_who_want_that(story: list[Step], late: bool) -> None:
    log = play(story, late=late)
    for node in NODES:
        found, existing = log.state.drain.get(node), log.state.node.get(node)
        owners_of_drains = [row.owner for row in log.state.requests_about(node) if row.drain]
        if existing is None or existing.uid is None:
            assert found is None
        else:
            assert [one["owner"] for one in orjson.loads(found.drains if found else "[]")] == owners_of_drains


outcomes = st.sampled_from(["applied", "expired", "none"])
asking = st.tuples(owners, st.booleans(), st.integers(1, 100), outcomes)


@given(st.lists(asking, max_size=20))
def test_nothing_is_decided_anew_but_what_is_fresh_or_stands_applied(story: list[tuple[str, bool, int, str]]) -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    requested_s, now_s = dict[str, int](), 0
    standing = set[str]()
    for number, (owner, releases, minutes, outcome) in enumerate(story):
        now_s += 60 * minutes
        name = f"r{number}"
        requested_s[name] = now_s
        wish = released(owner) if releases else requested(owner, cordon=False, labels={name: "x"})
        for intent in log.record("n1", wish, now_s):
            assert isinstance(intent.data, NodeIsolationChanged)
            labels = set(intent.data.isolation.labels)
            old = {one for one in labels if now_s - requested_s[one] > INTENT_AGE_MAX.total_seconds()}
            assert old <= standing
            if outcome == "applied":
                log.record("n1", applied(intent), now_s)
                standing = labels
            elif outcome == "expired":
                log.record("n1", NodeIsolationSuperseded(intent=intent.id, reason="Expired"), now_s)
