"""Agents' reports on devices: `inventory` says which count, and every other fold hears them through that alone."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.fact import Fact
from gpuledger.domain.inventory.reports import REJECTIONS_MAX
from gpuledger.events.device import (
    DeviceErrorsObserved,
    DeviceFailed,
    DeviceHealthChanged,
    DevicePoolApplied,
    DevicePoolReleased,
    DeviceReportAccepted,
    DeviceReportRejected,
)
from gpuledger.events.envelope import Decoded
from gpuledger.events.payload import Payload
from gpuledger.events.position import Offset
from gpuledger.events.publishing import Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering, Projection
from gpuledger.projection.errors import BadEventError
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools.queries.backend import all_projections
from support.device_reports import AWAY, HOME, UUID, Log
from support.events import GENERATION, IMPORT, START, event, folded, hour, message

FAILED = DeviceFailed(kind="XID 79")
OF_HEALTH = (DeviceHealthChanged, DeviceErrorsObserved)
UNHEALTHY = DeviceHealthChanged(healthy=False, kind="XID 79")
ERRORS = DeviceErrorsObserved(kind="XID 31", cause="application", first_at=START)


class Hearing(Projection):
    """Notes each report that it hears."""

    name = "hearing"
    version = 1
    specs = ()

    def __init__(self) -> None:
        self.heard: list[tuple[Decoded, Offset]] = []
        self.handlers = dict.fromkeys((DeviceFailed, *OF_HEALTH, DevicePoolApplied, DevicePoolReleased), self._note)  # type: ignore[misc]

    def new_state(self) -> Any:
        return None

    def _note(self, _state: object, fact: Fact, _data: object) -> None:
        self.heard.append((fact.event, fact.sequence))


def heard(messages: Sequence[Message]) -> list[tuple[Decoded, Offset]]:
    hearing = Hearing()
    folded(hearing, messages)
    return hearing.heard


def test_a_report_on_a_card_of_its_own_node_counts_where_it_is_accepted() -> None:
    log = Log()
    log.card_on("n1")
    (verdict,) = log.add(HOME, UUID, FAILED, at=1)
    assert isinstance(verdict.data, DeviceReportAccepted)
    ((report, sequence),) = heard(log.messages)
    assert sequence == len(log.messages)
    assert (report.source, report.subject, report.data, report.time) == (HOME, UUID, FAILED, verdict.time)
    assert (report.id, report.epoch, report.number) == (verdict.causation_id, "e1", 2)
    assert len(folded(DevicesProjection(), log.messages).state.tables()["failure"]) == 1


def test_a_report_on_another_nodes_card_is_rejected_and_changes_nothing() -> None:
    log = Log()
    log.card_on("n1")
    before = len(log.messages)
    (verdict,) = log.add(AWAY, UUID, FAILED, at=1)
    assert isinstance(verdict.data, DeviceReportRejected)
    assert (verdict.data.node, verdict.data.located_on, verdict.subject) == ("n2", "n1", UUID)
    assert heard(log.messages) == []
    assert not folded(DevicesProjection(), log.messages).state.tables()["failure"]
    rows = folded(SourcesProjection(), log.messages).state.tables()["source"].rows
    assert (rows[AWAY, "e1"].rejected, rows[HOME, "e1"].rejected) == (1, 0)
    assert len(log.messages) == before + 2


@pytest.mark.parametrize("data", [DevicePoolApplied(pool="p"), DevicePoolReleased(pool="p")])
def test_a_gpudevice_is_where_the_inventory_detected_it(data: Payload) -> None:
    log = Log()
    log.card_on("n1")
    (name,) = log.inventory.state.tables()["gpu_device"].rows
    (accepted,), (rejected,) = log.add(HOME, name, data, at=1), log.add(AWAY, name, data, at=1)
    assert isinstance(accepted.data, DeviceReportAccepted)
    assert isinstance(rejected.data, DeviceReportRejected)
    assert [(report.source, report.data) for report, _ in heard(log.messages)] == [(HOME, data)]


def test_a_card_that_nobody_has_may_be_anybodys() -> None:
    """An agent may report a failure before its first survey is recorded."""
    log = Log()
    (verdict,) = log.add(HOME, UUID, FAILED)
    assert isinstance(verdict.data, DeviceReportAccepted)


def test_a_late_report_on_a_card_that_has_moved_since_counts() -> None:
    log = Log()
    log.card_on("n1", at=2)
    log.survey("n1", at=4)
    log.card_on("n2", at=5)
    (late,), (after,) = log.add(HOME, UUID, FAILED, at=1), log.add(HOME, UUID, FAILED, at=6)
    assert isinstance(late.data, DeviceReportAccepted)
    assert isinstance(after.data, DeviceReportRejected)


def test_reports_from_before_the_rule_are_heard_as_they_stand() -> None:
    log = Log(enforced=False)
    log.card_on("n1")
    assert log.add(AWAY, UUID, FAILED, at=1) == []
    assert [(report.source, sequence) for report, sequence in heard(log.messages)] == [(AWAY, len(log.messages))]
    log.add("/services/sources", Rule.DEVICE_REPORTS, RuleEnforced())
    assert len(log.add(HOME, UUID, FAILED, at=2)) == 1
    assert [report.source for report, _ in heard(log.messages)] == [AWAY, HOME]


@pytest.mark.parametrize("data", [UNHEALTHY, ERRORS])
def test_health_and_errors_of_a_card_count_where_they_are_accepted(data: Payload) -> None:
    log = Log()
    log.card_on("n1")
    (accepted,), (rejected,) = log.add(HOME, UUID, data, at=1), log.add(AWAY, UUID, data, at=1)
    assert isinstance(accepted.data, DeviceReportAccepted)
    assert isinstance(rejected.data, DeviceReportRejected)
    assert [(report.source, report.data) for report, _ in heard(log.messages)] == [(HOME, data)]
    errors = folded(DevicesProjection(), log.messages).state.tables()["device_errors"].rows.values()
    assert [row.node for row in errors] == (["n1"] if data is ERRORS else [])
    health = folded(BootstrapProjection(), log.messages).state.tables()["bootstrap_health"].rows.values()
    assert [row.node for row in health] == (["n1"] if data is UNHEALTHY else [])


@pytest.mark.parametrize("data", [UNHEALTHY, ERRORS])
def test_health_and_errors_from_before_the_second_version_are_heard_as_they_stand(data: Payload) -> None:
    log = Log(version=1)
    log.card_on("n1")
    assert log.add(AWAY, UUID, data, at=1) == []
    assert len(log.add(AWAY, UUID, FAILED, at=1)) == 1
    log.add("/services/sources", Rule.DEVICE_REPORTS, RuleEnforced(version=2))
    assert len(log.add(AWAY, UUID, data, at=2)) == 1
    assert len(log.add(HOME, UUID, data, at=2)) == 1
    assert [(report.source, report.time) for report, _ in heard(log.messages)] == [(AWAY, hour(1)), (HOME, hour(2))]


def rejected(decided: Sequence[Decoded]) -> list[bool]:
    """Of each rejection that is recorded, whether it is the last one of its hour."""
    return [one.data.last_of_hour for one in decided if isinstance(one.data, DeviceReportRejected)]


def test_a_hostile_agent_has_so_many_rejections_recorded_within_an_hour_and_is_told_apart() -> None:
    log = Log()
    log.card_on("n1")
    decided = [verdict for _ in range(3 * REJECTIONS_MAX) for verdict in log.add(AWAY, UUID, FAILED, at=1)]
    assert rejected(decided) == [*[False] * (REJECTIONS_MAX - 1), True]
    (honest,), (other,) = log.add(HOME, UUID, FAILED, at=1), log.add("/nodes/n3/agent", UUID, FAILED, at=1)
    assert isinstance(honest.data, DeviceReportAccepted)
    assert rejected([other]) == [False]
    sources = folded(SourcesProjection(), log.messages).state.tables()
    limited = {row.source for row in sources["source"].rows.values() if row.limited_at}
    assert limited == {row.source for row in sources["source_hour"].rows.values() if row.limited_at} == {AWAY}
    assert [report.source for report, _ in heard(log.messages)] == [HOME]
    log.delay_s += 3_600
    assert rejected(log.add(AWAY, UUID, FAILED, at=1)) == [False]
    again = Fold(InventoryProjection(), GENERATION, numbering=Numbering("own", 1))
    again.apply_all(log.messages)
    assert again.outstanding() == []


def test_rejections_from_before_the_third_version_are_not_bounded() -> None:
    log = Log(version=2)
    log.card_on("n1")
    decided = [verdict for _ in range(REJECTIONS_MAX + 1) for verdict in log.add(AWAY, UUID, FAILED, at=1)]
    assert rejected(decided) == [False] * (REJECTIONS_MAX + 1)
    assert not log.inventory.state.tables()["inventory_report_hour"].rows
    log.add("/services/sources", Rule.DEVICE_REPORTS, RuleEnforced(version=3))
    assert len(log.add(AWAY, UUID, FAILED, at=1)) == 1


def test_an_imported_failure_needs_nobody() -> None:
    log = Log()
    log.card_on("n1")
    assert log.add(IMPORT, UUID, FAILED, at=1) == []
    assert [report.source for report, _ in heard(log.messages)] == [IMPORT]


def test_a_fold_of_the_log_decides_the_same_verdicts() -> None:
    log = Log()
    log.card_on("n1")
    log.add(HOME, UUID, FAILED, at=1)
    log.add(AWAY, UUID, FAILED, at=1)
    again = Fold(InventoryProjection(), GENERATION, numbering=Numbering("own", 1))
    again.apply_all(log.messages)
    assert again.outstanding() == []


@pytest.mark.parametrize("projection", [DevicesProjection(), Hearing()], ids=lambda one: one.name)
def test_a_verdict_on_what_is_no_report_stops_who_would_hear_it(projection: Projection) -> None:
    verdict = DeviceReportAccepted(
        node="n1", report="r", type=FAILED.TYPE, epoch="e", number=1, data={"kind": ["no text"]}
    )
    with pytest.raises(BadEventError, match="does not fit"):
        folded(projection, [message(event(verdict, UUID, source="/services/inventory"), 1)])


def test_only_the_inventory_judges() -> None:
    assert [one.name for one in all_projections() if one.judges] == ["inventory"]
