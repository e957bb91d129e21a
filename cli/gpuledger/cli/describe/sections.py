"""What the pages of devices and nodes have in common."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page
from gpuledger.cli.times import format_time
from gpuledger.tools.cluster import KubeEvent

ROWS_SHOWN = 20
"""Rows of a page's table; the newest come first, and `get` or `sql` show all."""

CONDITIONS = (
    Column("Type", "type"),
    Column("Status", "status"),
    Column("Reason", "reason"),
    Column("Since", "lastTransitionTime"),
    Column("Message", "message"),
)
FAILURES = (
    Column("Failed", "failed_at"),
    Column("Kind", "kind"),
    Column("Device", "device"),
    Column("Slot", "slot"),
    Column("Message", "message"),
)
EVENTS = (
    Column("Last seen", "time"),
    Column("Times", "times"),
    Column("Type", "type"),
    Column("Reason", "reason"),
    Column("Object", "about"),
    Column("From", "reporter"),
    Column("Message", "message"),
)


def conditions_of(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A status' conditions by type."""
    return sorted(status.get("conditions") or (), key=lambda condition: str(condition.get("type")))


def counted(rows: Sequence[object]) -> str:
    """What a title says where not all rows are shown."""
    return f" ({ROWS_SHOWN} of {len(rows)})" if len(rows) > ROWS_SHOWN else ""


def events_section(page: Page, events: Sequence[KubeEvent] | None, problem: str) -> None:
    """The last Events of Kubernetes, or why there are none to show."""
    if events is None:
        page.line("Events", f"Kubernetes was not asked: {problem}")
        return
    shown = [{**event._asdict(), "time": format_time(event.time)} for event in events[-ROWS_SHOWN:]]
    page.table(f"Events{counted(events)}", shown, EVENTS)


def known(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}
