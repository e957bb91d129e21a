"""The page of `what-if rollout`: the orders beside each other, the busy nodes, and what the numbers assume."""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.cli.get.config_nouns import listed
from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page

Document = Mapping[str, Any]

BUSY_SHOWN: Final = 20

ORDERS: Final = (
    Column("Order", "order"),
    Column("Hours", "hours"),
    Column("Node-hours away", "nodeHours"),
    Column("Busy nodes", "busyNodes"),
    Column("Devices held", "devices"),
    Column("GPU-hours interrupted", "interruptedGpuHours"),
    Column("GPU-hours disturbed", "disturbedGpuHours"),
)
BUSY: Final = (
    Column("Node", "node"),
    Column("Devices", "devices"),
    Column("Since", "since"),
    Column("Stays an hour", "staysAnHour"),
    Column("Pods", "pods", format=listed),
)


def what_if_rollout_page(document: Document) -> Page:
    """Lay out the page."""
    page, busy = Page(), document["busy"]
    page.fields(
        {
            "Pool": document["pool"],
            "Would roll out": document["would"],
            "Nodes": f"{document['nodes']} of {document['machines']}, {document['atOnce']} at a time",
            "Devices held now": f"{document['devicesHeld']} on {len(busy)} of them",
        }
    )
    page.table("Orders", document["orders"], ORDERS)
    more = f", the first {BUSY_SHOWN} of {len(busy)}" if len(busy) > BUSY_SHOWN else ""
    page.table(f"Busy nodes{more}", busy[:BUSY_SHOWN], BUSY)
    for one in document["assumptions"]:
        page.line("Assumed", one)
    for note in document["notes"]:
        page.line("Note", note)
    page.line("Answer", document["answer"])
    return page
