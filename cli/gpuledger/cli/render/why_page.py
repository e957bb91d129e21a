"""The page of `why`: every pool and request with its nodes and devices; the answer is the last line."""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page
from gpuledger.cli.render.why_shares_page import shares_part
from gpuledger.tools.explain.access import names_and_count
from gpuledger.tools.explain.dra_wording import WORDS
from gpuledger.tools.explain.pools import HAS_OR_NEEDS_NONE, Barrier
from gpuledger.tools.explain.pools_wording import BARRIERS

Document = Mapping[str, Any]

POOLS_SHOWN_MAX: Final = 20
"""Pools of a table; those with the most devices that match come first, and `-o json` has them all."""

DETAIL_CHARS_MAX: Final = 160
"""Characters of a detail, such as an expression; `-o json` has all of it."""

POOLS: Final = (
    Column("Pool", "pool"),
    Column("Node", "node"),
    Column("Devices", "devices"),
    Column("Match", "matching"),
    Column("Available", "available"),
    Column("Obstacles", "reasons"),
)
ALLOCATION: Final = (
    Column("Request", "request"),
    Column("Device", "device"),
    Column("Node", "node"),
    Column("Since", "since"),
    Column("Consumes", "consumedCapacity"),
)


def why_page(document: Document) -> Page:
    """Lay out the page."""
    page = Page()
    page.fields({name: document[key] for name, key in _HEAD if document.get(key) is not None})
    if "pod" in document:
        pod_part(page, document["pod"])
    for pool in document.get("pools") or ():
        pool_part(page, pool)
    if document.get("shares") is not None:
        shares_part(page, document["shares"])
    for claim in document["claims"]:
        page.fields({name: claim[key] for name, key in _CLAIM if claim.get(key) is not None})
        if "allocation" in claim:
            page.table("Allocation", [_allocated(one) for one in claim["allocation"]], ALLOCATION)
        for request in claim.get("requests") or ():
            for option in request["alternatives"]:
                _option(page, request["request"], option)
    if document.get("preflight") is not None:
        checks_part(page, document["preflight"])
    for note in document["notes"]:
        page.line("Note", note)
    page.line("Answer", document["answer"])
    return page


_HEAD: Final = (
    ("Requested", "subject"),
    ("Moment", "moment"),
    ("Seen from", "node"),
    ("Pods named", "podsNamed"),
    ("Claims shown", "claimsNamed"),
    ("Used by pods", "consumers"),
)
_CLAIM: Final = (
    ("Claim", "claim"),
    ("Phase", "phase"),
    ("Since", "since"),
    ("Made for pod", "owner"),
    ("Problem", "problem"),
)


def _option(page: Page, request: str, option: Document) -> None:
    label = request if option["name"] == request else f"{request}/{option['name']}"
    requested = option["asked"] if isinstance(option["asked"], int) else "all"
    admin = ", administrators' access" if option["adminAccess"] else ""
    pools = sorted(option["pools"], key=lambda pool: -pool["matching"])
    more = f" ({POOLS_SHOWN_MAX} of {len(pools)})" if len(pools) > POOLS_SHOWN_MAX else ""
    page.line(f"Request {label}", f"{requested} of DeviceClass {option['deviceClass']}{admin}; {option['answer']}")
    page.table(f"Pools{more}", [_pool(one) for one in pools[:POOLS_SHOWN_MAX]], POOLS)


def _pool(pool: Document) -> Document:
    reasons = list(map(_reason, pool["reasons"]))
    if pool["problem"] and not any(pool["problem"].startswith(one["reason"]) for one in pool["reasons"]):
        reasons.append(pool["problem"])
    return {**pool, "pool": f"{pool['driver']}/{pool['pool']}", "reasons": "; ".join(reasons) or None}


def _reason(reason: Document) -> str:
    words = next(words for kind, words in WORDS.items() if kind == reason["reason"])
    holders = names_and_count(reason.get("claims") or (), reason.get("unnamedClaims") or 0)
    detail = _cut(reason["detail"])
    return f"{len(reason['devices'])} {words}{f' by {holders}' if holders else ''}{f' ({detail})' if detail else ''}"


def _allocated(one: Document) -> Document:
    return {**one, "device": f"{one['driver']}/{one['pool']}/{one['device']}"}


def _cut(text: str) -> str:
    return text if len(text) <= DETAIL_CHARS_MAX else f"{text[:DETAIL_CHARS_MAX]}..."


ROWS_SHOWN_MAX: Final = 20
"""Rows of a table; nodes with the most free units and pods by name come first, and `-o json` has them all."""

NODES: Final = (
    Column("Node", "node"),
    Column("Offered", "offered"),
    Column("Used", "used"),
    Column("Free", "free"),
    Column("Obstacles", "inTheWay"),
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
"""The words for a node that has fewer free units than the pod requests."""


def pod_part(page: Page, pod: Document) -> None:
    """The fields about the pod."""
    scheduler = pod["scheduler"]
    fields = {
        "Bound to": pod["node"],
        "Since": pod["since"],
        "Ended": pod["ended"],
        "Scheduling gates": ", ".join(pod["schedulingGates"]) or None,
        "Scheduler says": scheduler and f"{scheduler['reason']}: {scheduler['message']}",
    }
    page.fields({name: value for name, value in fields.items() if value is not None})


def pool_part(page: Page, pool: Document) -> None:
    """The part about one pool whose units the pod requests."""
    page.line("Pool", f"{pool['pool']}: {pool['answer']}")
    if pool["nodes"]:
        page.line("Units", _units(pool))
    if pool["othersWaiting"]:
        page.line("Other pods that wait for units", str(pool["othersWaiting"]))
    if pool["conditions"]:
        page.table("Conditions", pool["conditions"], CONDITIONS)
    if pool["nodes"]:
        requested = 0 if pool["reason"] in HAS_OR_NEEDS_NONE else pool["asked"]
        nodes = sorted(pool["nodes"], key=lambda one: (not one["fits"], -one["free"]))
        page.table(f"Nodes{_counted(nodes)}", [_node(one, requested) for one in nodes[:ROWS_SHOWN_MAX]], NODES)
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
    total = "unknown" if pool["total"] is None else pool["total"]
    return f"{pool['asked']} requested; {total} in all, {pool['used']} used, {pool['free']} free"


def _node(node: Document, requested: int) -> Document:
    barriers = [*map(_barrier, node["inTheWay"]), *([] if node["free"] >= requested else [TOO_FEW])]
    return {**node, "inTheWay": "; ".join(barriers) or None}


def _barrier(one: Document) -> str:
    detail = f" ({one['detail']})" if one["detail"] else ""
    return f"{BARRIERS[Barrier(one['reason'])]}{detail}"


def _counted(rows: list[Any]) -> str:
    return f" ({ROWS_SHOWN_MAX} of {len(rows)})" if len(rows) > ROWS_SHOWN_MAX else ""


CHECKS: Final = (
    Column("Check", "check"),
    Column("Attempt", "attempt"),
    Column("State", "state"),
    Column("Outcome", "outcome"),
    Column("Exit code", "exitCode"),
    Column("Codes", "codes"),
    Column("Started", "started"),
    Column("Ended", "ended"),
    Column("Message", "message"),
)
HELD_UP_BY: Final = (Column("Pod", "pod"), Column("Check", "check"), Column("Reason", "reason"))


def checks_part(page: Page, checks: Document) -> None:
    """The part about the pod's preflight checks and its gang."""
    shown = ({**one, "codes": ", ".join(one["codes"]), "message": _cut(one["message"])} for one in checks["checks"])
    page.table("Preflight checks", shown, CHECKS)
    gang = checks["gang"]
    if gang is not None:
        fields = {name: gang[key] for name, key in _GANG if gang[key] not in (None, "")}
        page.fields({**fields, **_gives_up(checks)}, title="Gang")
    if checks["heldUpBy"]:
        pods = checks["heldUpBy"]
        page.table(f"Held up by{_counted(pods)}", pods[:ROWS_SHOWN_MAX], HELD_UP_BY)


_GANG: Final = (
    ("Name", "gang"),
    ("State", "state"),
    ("Pods expected", "expected"),
    ("Pods found", "found"),
    ("Since", "since"),
    ("Timed out", "timedOut"),
    ("ConfigMap", "configMap"),
    ("Reason", "reason"),
    ("Message", "message"),
)


def _gives_up(checks: Document) -> Document:
    until = checks["gangTimeoutAt"]
    return {} if until is None else {"Check gives up": until}
