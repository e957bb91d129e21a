"""The page of `what-if`: devices, then capacities; the answer is the last line."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuledger.cli.describe.sections import ROWS_SHOWN, counted
from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page

DEVICES: Final = (
    Column("Name", "name"),
    Column("Node", "node"),
    Column("Product", "product"),
    Column("Is in", "was"),
    Column("Would be in", "would"),
    Column("Why", "why"),
    Column("Message", "message"),
)
POOLS: Final = (
    Column("Pool", "pool"),
    Column("Total", "total"),
    Column("Used", "used"),
    Column("Available", "available"),
    Column("Conditions", "conditions"),
)
KEPT_OUT: Final = (
    Column("Name", "name"),
    Column("Node", "node"),
    Column("State", "state"),
    Column("Why", "why"),
    Column("Message", "message"),
)

Document = Mapping[str, Any]


def what_if_page(document: Document) -> Page:
    """Lay out the page."""
    page = Page()
    page.fields(
        {"Pool": f"{document['kind']} {document['pool']}", "From": document["file"], "Since": document["since"]}
    )
    for note in document["notes"]:
        page.line("Note", note)
    devices, pools, kept_out = document["devices"], document["pools"], document["keptOut"]
    page.table(f"Devices that would change{counted(devices)}", map(_device, devices[:ROWS_SHOWN]), DEVICES)
    page.table(f"Capacities that would change{counted(pools)}", map(_pool, pools[:ROWS_SHOWN]), POOLS)
    if kept_out:
        title = f"Devices that would match and not be in it{counted(kept_out)}"
        page.table(title, map(_excluded, kept_out[:ROWS_SHOWN]), KEPT_OUT)
    page.line("Answer", document["answer"])
    return page


def _device(one: Document) -> Document:
    return {**one, "was": _held(one["was"]), "would": _held(one["would"]), **_reasons(one)}


def _held(held: Document) -> str | None:
    return None if held["pool"] is None else f"{held['pool']} ({held['phase']})"


def _excluded(one: Document) -> Document:
    return {**one, **_reasons(one)}


def _reasons(one: Document) -> Document:
    return {
        "why": ", ".join(why["reason"] for why in one["reasons"]) or None,
        "message": " ".join(why["message"] for why in one["reasons"] if why["message"]) or None,
    }


def _pool(one: Document) -> Document:
    was, would = one["was"] or {}, one["would"] or {}
    return {
        "pool": one["pool"],
        **{name: _change(was, would, name) for name in ("total", "used", "available")},
        "conditions": "; ".join(_conditions(was, would)) or None,
    }


def _change(was: Document, would: Document, name: str) -> str:
    before, after = (_amount(one, name) for one in (was, would))
    return before if before == after else f"{before} → {after}"


def _amount(offer: Document, name: str) -> str:
    return str(offer["capacity"].get(name, "unknown")) if offer else "none"


def _conditions(was: Document, would: Document) -> Iterator[str]:
    before, after = ({one["type"]: one for one in offer.get("conditions") or ()} for offer in (was, would))
    for kind in sorted(after):
        old, new = before.get(kind), after[kind]
        if old is None:
            yield f"{kind}: {new['status']} ({new['reason']})"
        elif (old["status"], old["reason"]) == (new["status"], new["reason"]):
            continue
        elif old["status"] == new["status"]:
            yield f"{kind}: {new['status']} ({old['reason']} → {new['reason']})"
        else:
            yield f"{kind}: {old['status']} → {new['status']} ({new['reason']})"
