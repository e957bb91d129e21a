"""Which faults are ready for a remedy, and where nobody has to look any more. Pure."""

from gpuledger.domain.fact import Fact, counted_as_recorded
from gpuledger.domain.remediation import rows
from gpuledger.domain.remediation.state import Remediations
from gpuledger.events.remediation import NOT_DRAINED


def review(state: Remediations, fact: Fact, node: str) -> None:
    """See which faults of a node are ready for a remedy from here on, and which no longer are."""
    if fact.event.imported:
        return
    ready_at = min(fact.event.time, counted_as_recorded(fact.event, fact.recorded_ns))
    for row in state.standing(node):
        if row.state not in (rows.WAITING, rows.PENDING):
            continue
        is_ready = row.is_accepted and state.remedy_of(row) is not None and state.is_quarantined(row)
        if is_ready and row.state == rows.WAITING:
            state.pend(row._replace(state=rows.PENDING, cause=fact.event.id, ready_at=ready_at))
        elif not is_ready and row.state == rows.PENDING:
            state.fault.put(row._replace(state=rows.WAITING, cause="", ready_at=None))


def faults_ended(state: Remediations, node: str) -> None:
    """Nobody has to look any more where no fault needs it that has the node set aside."""
    if not any(row.state == rows.ATTENTION for row in state.standing(node)):
        state.end_attention(node, lambda row: row.reason != NOT_DRAINED)
    if not state.not_drained(node):
        state.end_attention(node, lambda row: row.reason == NOT_DRAINED)
    state.touch(node)
