"""A fault stands until each of its error codes is cleared: quarantine and remediation agree with sets of codes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.events.health import NodeHealthReported
from support.events import rows_of
from support.quarantine import QuarantineLog, reported, rules
from support.remediation import RemediationLog

ENTITIES = ("0", "1")
RECORDED_S = 100

Standing = dict[str, set[str]]
"""The codes that stand by entity; an empty one for reports without codes."""


class Finding(NamedTuple):
    """A report by what it is about: without entities a healthy one is about all, without codes about each code."""

    entities: tuple[str, ...]
    codes: tuple[str, ...]
    healthy: bool

    def payload(self) -> NodeHealthReported:
        return reported(*self.entities, codes=self.codes, healthy=self.healthy, action="RESTART_BM")


reports = st.lists(
    st.builds(
        Finding,
        st.sampled_from([("0",), ("0",), ("1",), ENTITIES, ()]),
        st.sampled_from([(), ("A",), ("A",), ("B",), ("A", "B"), ("C",)]),
        st.booleans(),
    ),
    max_size=14,
)


def model(story: Sequence[Finding]) -> Standing:
    """What stands after reports in the order of their times."""
    standing: Standing = {}
    for one in story:
        named = {f"GPU/{entity}" for entity in one.entities} or {""}
        if not one.healthy:
            for entity in named:
                standing.setdefault(entity, set()).update(one.codes or {""})
            continue
        for entity in list(standing) if "" in named else named & standing.keys():
            standing[entity] -= set(one.codes) or standing[entity]
            if not standing[entity]:
                del standing[entity]
    return standing


def quarantine(story: Sequence[Finding], order: Sequence[int]) -> QuarantineLog:
    """The log of a story whose reports are recorded in an order."""
    log = QuarantineLog("n1", document=rules())
    for place in order:
        log.record("n1", story[place].payload(), place + 1, recorded_s=RECORDED_S)
    return log


@given(reports, st.data())
def test_quarantine_has_the_codes_that_stand_in_whatever_order_reports_are_recorded(
    story: list[Finding], data: st.DataObject
) -> None:
    expected, log = model(story), quarantine(story, data.draw(st.permutations(range(len(story)))))
    assert {row.entity: set(row.code_times()) for row in log.state.fault.rows.values()} == expected
    assert log.set_aside() == ({"n1"} if expected else set())
    again = log.new_fold()
    again.apply_all(log.messages())
    assert rows_of(again) == rows_of(log.fold)


@given(reports)
def test_remediation_has_the_codes_that_stand(story: list[Finding]) -> None:
    log = RemediationLog()
    for place, one in enumerate(story, 1):
        log.record("n1", one.payload(), place)
    assert {row.entity: set(row.code_times()) for row in log.state.standing("n1")} == model(story)


@given(reports.filter(bool), st.data())
def test_remediation_remembers_which_codes_were_cleared(story: list[Finding], data: st.DataObject) -> None:
    """Once each entity has a fault, what was cleared after that is remembered."""
    first = Finding((*ENTITIES,), ("Z",), healthy=False)
    whole = [first, Finding((), ("Z",), healthy=False), *story]
    order = [0, 1, *data.draw(st.permutations(range(2, len(whole))))]
    assert remediation(whole, order) == model(whole)


def test_a_fault_that_is_over_remembers_what_is_cleared_later() -> None:
    """What was reported before that, and is recorded behind it, is over."""
    unhealthy, healthy = Finding(("0",), (), healthy=False), Finding(("0",), (), healthy=True)
    assert remediation([unhealthy, healthy, unhealthy, healthy], [0, 1, 3, 2]) == {}


def test_a_fault_is_over_since_it_ended_however_often_its_check_is_healthy_again() -> None:
    """So that it is forgotten in its time."""
    unhealthy, healthy = Finding(("0",), (), healthy=False), Finding(("0",), (), healthy=True)
    once, often = (remediation_log([unhealthy, *[healthy] * times], range(times + 1)) for times in (1, 5))
    assert [row.changed_at for row in often.state.fault.rows.values()] == [
        row.changed_at for row in once.state.fault.rows.values()
    ]


def remediation_log(story: Sequence[Finding], order: Iterable[int]) -> RemediationLog:
    """The log of a story whose reports are recorded in an order."""
    log = RemediationLog()
    for place in order:
        log.record("n1", story[place].payload(), place + 1, recorded_s=RECORDED_S)
    return log


def remediation(story: Sequence[Finding], order: Sequence[int]) -> Standing:
    """What stands for remediation after a story whose reports are recorded in an order."""
    log = remediation_log(story, order)
    return {row.entity: set(row.code_times()) for row in log.state.standing("n1")}
