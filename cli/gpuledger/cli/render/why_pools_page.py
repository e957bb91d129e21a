"""The part of an explanation's page that is about units of pools."""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page
from gpuledger.tools.explain.access import names_and_count
from gpuledger.tools.explain.pools import HAS_OR_NEEDS_NONE, Barrier
from gpuledger.tools.explain.pools_wording import BARRIERS

ROWS_SHOWN_MAX: Final = 20
"""Rows of a table; nodes with the most free units and pods by name come first, and `-o json` has them all."""

NODES: Final = (
    Column("Node", "node"),
    Column("Offered", "offered"),
    Column("Used", "used"),
    Column("Free", "free"),
    Column("In the way", "inTheWay"),
)
IDLE: Final = (
    Column("Devices", "devices"),
    Column("State", "state"),
    Column("Reason", "reason"),
    Column("Message", "message"),
)
CONDITIONS: Final = (
    Column("Type", "type"),
    Column("Status", "status"),
    Column("Reason", "reason"),
    Column("Message", "message"),
)
PODS: Final = (Column("Pod", "pod"), Column("Node", "node"), Column("Units", "units"))
QUOTAS: Final = (Column("Quota", "name"), Column("Used", "used"), Column("Hard", "hard"), Column("Left", "left"))

TOO_FEW: Final = "has too few free"
"""What a node is said to be that has fewer free units than the pod asks for."""

Document = Mapping[str, Any]


def pod_part(page: Page, pod: Document) -> None:
    """How far the pod is."""
    scheduler = pod["scheduler"]
    told = {
        "Bound to": pod["node"],
        "Since": pod["since"],
        "Ended": pod["ended"],
        "Scheduling gates": ", ".join(pod["schedulingGates"]) or None,
        "Scheduler says": scheduler and f"{scheduler['reason']}: {scheduler['message']}",
    }
    page.fields({name: value for name, value in told.items() if value is not None})


def pool_part(page: Page, pool: Document) -> None:
    """One pool that the pod asks for units of."""
    page.line("Pool", f"{pool['pool']}: {pool['answer']}")
    if pool["nodes"]:
        page.line("Units", _units(pool))
    if pool["othersWaiting"]:
        page.line("Other pods that wait for units", str(pool["othersWaiting"]))
    if pool["conditions"]:
        page.table("Conditions", pool["conditions"], CONDITIONS)
    if pool["nodes"]:
        wanted = 0 if pool["reason"] in HAS_OR_NEEDS_NONE else pool["asked"]
        nodes = sorted(pool["nodes"], key=lambda one: (not one["fits"], -one["free"]))
        page.table(f"Nodes{_counted(nodes)}", [_node(one, wanted) for one in nodes[:ROWS_SHOWN_MAX]], NODES)
    if pool["devicesThatOfferNothing"]:
        page.table("Devices that offer nothing", pool["devicesThatOfferNothing"], IDLE)
    if pool["pods"]:
        page.table(f"Units are used by{_counted(pool['pods'])}", pool["pods"][:ROWS_SHOWN_MAX], PODS)
    unnamed = pool["unnamedPods"]
    if unnamed["pods"]:
        page.line("Used by others", f"{unnamed['units']} by {names_and_count((), unnamed['pods'], 'pod')}")
    if pool["quotas"]:
        page.table("Quotas", pool["quotas"], QUOTAS)


def _units(pool: Document) -> str:
    total = "not known" if pool["total"] is None else pool["total"]
    return f"{pool['asked']} asked; {total} in all, {pool['used']} used, {pool['free']} free"


def _node(node: Document, wanted: int) -> Document:
    barriers = [*map(_barrier, node["inTheWay"]), *([] if node["free"] >= wanted else [TOO_FEW])]
    return {**node, "inTheWay": "; ".join(barriers) or None}


def _barrier(one: Document) -> str:
    detail = f" ({one['detail']})" if one["detail"] else ""
    return f"{BARRIERS[Barrier(one['reason'])]}{detail}"


def _counted(rows: list[Any]) -> str:
    return f" ({ROWS_SHOWN_MAX} of {len(rows)})" if len(rows) > ROWS_SHOWN_MAX else ""
