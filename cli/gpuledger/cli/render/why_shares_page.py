"""The part of `why` about a pod's shared devices: what it asks for, which it has, and what nodes make of it."""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page
from gpuledger.tools.explain.shares_wording import amount_words

Document = Mapping[str, Any]

NODES_SHOWN_MAX: Final = 8
"""Nodes of a row; `-o json` has them all."""

DEVICES: Final = (
    Column("Type", "type"),
    Column("Minor", "minor"),
    Column("Device", "id"),
    Column("Amounts", "amounts"),
)
OBSTACLES: Final = (
    Column("Nodes", "number"),
    Column("Reason", "reason"),
    Column("Resources", "resources"),
    Column("Most left on a device", "mostLeft"),
    Column("Names", "names"),
)


def shares_part(page: Page, shares: Document) -> None:
    """The part about shared devices."""
    fields = {
        "Asks for": ", ".join(map(_request_words, shares["devicesAsked"])) or None,
        "State": shares["state"],
        "Scheduler": shares["scheduler"],
        "Annotation": shares["unreadable"],
        "Would fit on": _names(shares["fitting"]) or None,
    }
    page.fields({name: value for name, value in fields.items() if value is not None}, title="Shared devices")
    if shares["devices"]:
        page.table(f"Devices on {shares['node']}", [_device(one) for one in shares["devices"]], DEVICES)
    if shares["differs"] and shares["reservation"] is not None:
        reserved = shares["reservation"]
        page.table(f"Reserved on {reserved['node']}", [_device(one) for one in reserved["devices"]], DEVICES)
    if shares["obstacles"]:
        page.table("Nodes that do not take it", [_obstacle(one) for one in shares["obstacles"]], OBSTACLES)


def _request_words(one: Document) -> str:
    return f"{one['number']} {one['type']} ({_amounts(one['each'])})"


def _device(one: Document) -> Document:
    return {**one, "amounts": _amounts(one.get("resources", {})), "id": one.get("id")}


def _obstacle(one: Document) -> Document:
    most = {resource: found["amount"] for resource, found in one["mostLeft"].items()}
    return {
        **one,
        "number": len(one["nodes"]),
        "resources": ", ".join(one["resources"]) or None,
        "mostLeft": _amounts(most) or None,
        "names": _names(one["nodes"]),
    }


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{resource} {amount_words(resource, amount)}" for resource, amount in sorted(amounts.items()))


def _names(names: list[str]) -> str:
    more = len(names) - NODES_SHOWN_MAX
    return ", ".join(names[:NODES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
