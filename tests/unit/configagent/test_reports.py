"""What the agent's facts say beside its annotations."""

from datetime import UTC, datetime

import pytest

from gpuledger.api.conditions import rfc3339_exact
from gpuledger.api.machine_config import AgentState
from gpuledger.configagent.reports import AgentReport, fact_of

ORDERED_AT = datetime(2026, 1, 9, 10, 0, 0, 250, UTC)


@pytest.mark.parametrize(
    ("annotation", "time"),
    [
        (rfc3339_exact(ORDERED_AT), ORDERED_AT),
        ("2026-01-09T10:00:00Z", ORDERED_AT.replace(microsecond=0)),
        ("2026-01-09T10:00:00", None),
        ("yesterday", None),
        ("", None),
        (None, None),
    ],
)
def test_a_fact_repeats_when_the_order_was_given_that_it_is_about(
    annotation: str | None, time: datetime | None
) -> None:
    report = AgentReport(AgentState.DONE, "rendered-a-1", "rendered-a-1", asked_at=annotation)
    assert fact_of(report, (), "b1").desired_set_at == time
