"""Which rows can be shared by the origin of the events: ADR 37 says so of these projections, and relies on it.

A share takes the events of some origins, by the hash that also gives a partition, and sees no number of any other. A
fold that makes a row of what two nodes say takes that back.
"""

from collections.abc import Callable, Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from gpuledger.events.allocation import AllocatedDevices, AllocationEnded, AllocationObserved
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.ledger.api import Message
from gpuledger.ledger.partitions import partition_of
from gpuledger.projection.definition import Projection
from gpuledger.readmodels.projections import AllocationsProjection, EventIndexProjection
from support.events import RecordedFact, facts, folded, hours, log_of, numbered, rows_of
from support.fold_snapshots import recorded_messages

SOURCES = "/services/sources"
SERVICES = "ledger.svc."
"""What our services publish; every share of the allocations needs the rules that are enforced."""

shares = st.integers(2, 5)
_nodes = st.sampled_from(["n1", "n2", "n3"])
_ids = st.lists(st.sampled_from(["g1", "g2", "g2::0"]), max_size=2).map(tuple)
_seldom = st.integers(0, 5).map(lambda number: number == 1)


def _observed(node: str, ids: tuple[str, ...]) -> AllocationObserved:
    held = (AllocatedDevices(resource="r", devices=ids),)
    return AllocationObserved(node=node, namespace="ns", pod="p", container="c", resources=held)


def _report(agent: str, node: str, at: int, data: AllocationObserved | AllocationEnded) -> RecordedFact:
    return RecordedFact(f"/nodes/{agent}/agent", f"{node}/ns/p/c", at, data)


@st.composite
def _reports(draw: st.DrawFn) -> RecordedFact:
    """An agent's report on a container; now and then on one of another node, which does not count."""
    agent, about, named = draw(_nodes), draw(_nodes), draw(_nodes)
    node, named = (about, named) if draw(_seldom) else (agent, agent)
    return _report(agent, node, draw(hours), AllocationEnded() if draw(_seldom) else _observed(named, draw(_ids)))


_rules = st.sampled_from([Rule.PUBLISHERS, Rule.BOUNDS]).map(
    lambda rule: RecordedFact(SOURCES, rule, 0, RuleEnforced(version=RULE_VERSIONS[rule]))
)
reported = st.lists(st.one_of(*[_reports()] * 5, _rules), min_size=4, max_size=24)


ON_EVERY_NODE = log_of(
    numbered(
        report
        for node in ("n1", "n2", "n3", "n4")
        for report in (_report(node, node, 0, _observed(node, ("g1",))), _report(node, node, 1, AllocationEnded()))
    )
)
"""A container had the same on each node at the same time, so that what nodes share would be one row."""


@st.composite
def _logs(draw: st.DrawFn, recorded: st.SearchStrategy[list[RecordedFact]]) -> list[Message]:
    """A log of facts, some of which are there twice."""
    events = numbered(draw(recorded))
    repeats = draw(st.lists(st.sampled_from(events), max_size=4)) if events else []
    return log_of([*events, *repeats])


def _of_share(one: Message, share: int, of: int) -> bool:
    return partition_of(one.subject, of) == share


def _of_share_or_a_service(one: Message, share: int, of: int) -> bool:
    return one.subject.startswith(SERVICES) or _of_share(one, share, of)


def _assert_shared(
    projection: Projection, log: Sequence[Message], of: int, takes: Callable[[Message, int, int], bool]
) -> None:
    """The rows of all shares are those of the whole, and no two shares have a row of one key."""
    found = [rows_of(folded(projection, [one for one in log if takes(one, share, of)])) for share in range(of)]
    for name, whole in rows_of(folded(projection, log)).items():
        assert sum(len(rows[name]) for rows in found) == len(whole), name
        assert {key: row for rows in found for key, row in rows[name].items()} == whole, name


@given(log=_logs(reported), of=shares)
@example(log=ON_EVERY_NODE, of=5)
def test_allocations_follow_from_the_reports_of_one_node(log: list[Message], of: int) -> None:
    _assert_shared(AllocationsProjection(), log, of, _of_share_or_a_service)


@given(log=_logs(facts | reported), of=shares)
def test_entries_of_the_index_follow_from_one_event(log: list[Message], of: int) -> None:
    _assert_shared(EventIndexProjection(), log, of, _of_share)


@given(of=shares)
def test_a_log_of_every_type_of_event_can_be_shared(of: int) -> None:
    log = recorded_messages()
    _assert_shared(AllocationsProjection(), log, of, _of_share_or_a_service)
    _assert_shared(EventIndexProjection(), log, of, _of_share)
