"""Groups of a card's errors: what is reported of many, and of a counter that counts nonsense."""

from gpuledger.agent.health.aggregation import BURST_S, add_errors, close_windows
from gpuledger.events.payload import BIGINT_MAX
from support.agent_parts import moment

NONSENSE = 2**64 - 1


def test_a_count_that_no_event_can_hold_is_cut() -> None:
    windows, first = add_errors((), "EccUncorrected", "hardware", "", moment(0), count=NONSENSE)
    assert first is not None
    assert first.data.count == BIGINT_MAX
    windows, none = add_errors(windows, "EccUncorrected", "hardware", "", moment(1), count=NONSENSE)
    assert none is None
    _, (group,) = close_windows(windows, moment(BURST_S))
    assert group.data.count == BIGINT_MAX
