"""The part of a page about one incident: its fields, its reports, and the containers that had the card meanwhile."""

from collections.abc import Mapping
from typing import Any

from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page

REPORTS = (
    Column("Reported", "reported_at"),
    Column("Healthy", "healthy"),
    Column("Fatal", "fatal"),
    Column("Codes", "codes"),
    Column("Action", "action"),
    Column("Times", "reports"),
    Column("Position", "position"),
    Column("Recorded", "recorded_at"),
    Column("Message", "message"),
)
HOLDERS = (
    Column("Namespace", "namespace"),
    Column("Pod", "pod"),
    Column("Container", "container"),
    Column("Resource", "resource"),
    Column("Claim", "claim"),
    Column("Slice", "slice"),
    Column("From", "valid_from"),
    Column("To", "valid_to"),
)
FIELDS = {
    "Incident": "incident",
    "Node": "node",
    "Monitor": "monitor",
    "Check": "check_name",
    "Entity": "entity",
    "Device": "device",
    "Component": "component",
    "Opened": "opened_at",
    "Recorded": "recorded_at",
    "Ended": "ended_at",
    "Ended by": "ended_by",
    "Last report": "last_at",
    "Reports": "reports",
    "Fatal": "fatal",
    "Codes": "codes",
    "First cause": "first_cause",
    "Last cause": "last_cause",
    "Action": "action",
}
"""The fields of the page, by their names there."""


def incident_part(page: Page, found: Mapping[str, Any]) -> None:
    """Add an incident to a page."""
    page.fields({name: found[column] for name, column in FIELDS.items() if found[column] not in (None, "")})
    page.table("Timeline", found["timeline"], REPORTS)
    page.table("Held meanwhile by", found["holders"], HOLDERS)
