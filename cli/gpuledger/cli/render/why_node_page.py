"""The page of `why node`: each request with its hops, each report with what came of it, its rollout, and the answer."""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page

Document = Mapping[str, Any]

HOPS: Final = (
    Column("Hop", "hop"),
    Column("Time", "time"),
    Column("Recorded", "recorded"),
    Column("After ms", "latencyMs"),
    Column("Position", "position"),
    Column("By", "by"),
    Column("Detail", "detail"),
)
_REQUEST: Final = (
    ("Owner", "owner"),
    ("Requested by", "by"),
    ("Ruleset", "ruleset"),
    ("Version", "version"),
    ("Reason", "reason"),
    ("Message", "message"),
    ("Since", "since"),
    ("Expires", "expires"),
    ("Ended", "ended"),
    ("Ended by", "endedBy"),
    ("State", "state"),
)

_ROLLOUT: Final = (
    ("Target", "target"),
    ("Current", "current"),
    ("Desired", "desired"),
    ("Phase", "phase"),
    ("Since", "since"),
    ("Agent", "agent"),
    ("Says", "answer"),
)


def why_node_page(document: Document) -> Page:
    """Lay out the page."""
    page = Page()
    page.fields({"Requested": document["subject"], "Moment": document["moment"]})
    for one in document["requests"]:
        page.fields({name: one[key] for name, key in _REQUEST if one[key] is not None}, title="Request")
        page.table("Hops", one["hops"], HOPS)
        if one["joined"]:
            page.table("In force before", one["joined"], HOPS)
    for one in document["reports"]:
        codes = f" ({', '.join(one['codes'])})" if one["codes"] else ""
        about = f" of {one['entity']}" if one["entity"] else ""
        page.line("Report", f"{one['monitor']} {one['check']}{about}{codes} at {one['position']} {one['detail']}")
    rollout = document.get("rollout")
    if rollout is not None:
        page.fields({name: rollout[key] for name, key in _ROLLOUT if rollout[key] is not None}, title="Rollout")
    for note in document["notes"]:
        page.line("Note", note)
    page.line("Answer", document["answer"])
    return page
