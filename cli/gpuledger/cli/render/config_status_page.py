"""The page of `config status`: a bar, counts, the nodes in flight, those that failed, and why it does not go on."""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page

Document = Mapping[str, Any]

BAR_CELLS: Final = 24

NODES: Final = (
    Column("Node", "node"),
    Column("Zone", "zone"),
    Column("Phase", "phase"),
    Column("Since", "since"),
    Column("Current", "current"),
    Column("Desired", "desired"),
    Column("Agent", "agent"),
    Column("Retries", "retries"),
    Column("Message", "message"),
)
NAMES_SHOWN: Final = 12


def bar_text(done: int, total: int) -> str:
    """A bar of fixed width; full only where all are done."""
    cells = BAR_CELLS if done >= total else done * BAR_CELLS // total
    return f"[{'#' * cells}{'-' * (BAR_CELLS - cells)}]"


def counts_text(document: Document) -> str:
    """The bar and the counts on one line."""
    parts = [f"{document['updated']}/{document['nodes']} updated"]
    counts = (
        (len(document["inFlight"]), "in flight"),
        (len(document["failed"]), "failed"),
        (len(document["waiting"]), "waiting"),
    )
    parts += [f"{count} {word}" for count, word in counts if count]
    return f"{bar_text(document['updated'], document['nodes'])} {', '.join(parts)}"


def config_status_page(document: Document) -> Page:
    """Lay out the page."""
    page = Page()
    fields = {
        "Pool": document["pool"],
        "Target": document["target"],
        "Pinned": document["pinned"],
        "Paused": document["paused"],
        "Progress": counts_text(document),
        "Unavailable": f"{_count(document['unavailable'])} of at most {_count(document['maxUnavailable'])}",
    }
    page.fields({name: value for name, value in fields.items() if value is not None})
    if document["inFlight"]:
        page.table("In flight", document["inFlight"], NODES)
    if document["failed"]:
        page.table("Failed", document["failed"], NODES)
    if document["waiting"]:
        page.line("Waiting", _names(document["waiting"]))
    for one in document["holds"]:
        page.line("Note", one)
    if document["done"]:
        page.line("Answer", "all nodes are up to date")
    return page


def _count(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _names(nodes: list[str]) -> str:
    more = f" and {len(nodes) - NAMES_SHOWN} more" if len(nodes) > NAMES_SHOWN else ""
    return f"{', '.join(nodes[:NAMES_SHOWN])}{more}"
