"""The page of a bundle: its proof, the incident, its events in the order of the log, and what that is worth."""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.cli.render import Column
from gpuledger.cli.render.incident_page import incident_part
from gpuledger.cli.render.page import Page
from gpuledger.cli.render.values import json_text

DETAIL_CHARS_MAX: Final = 100
"""Characters of an event's detail; `-o json` has all of it."""

EVENTS: Final = (
    Column("Position", "position"),
    Column("Time", "time"),
    Column("Recorded", "recorded_at"),
    Column("Event", "type"),
    Column("Standing", "standing"),
    Column("About", "about"),
    Column("Detail", "detail"),
)
_PROOF: Final = (
    ("Ledger", "ledger"),
    ("Digest", "digest"),
    ("Seals", "seals"),
    ("Seal digest", "sealDigest"),
)

Document = Mapping[str, Any]


def bundle_page(document: Document) -> Page:
    """Lay out the page."""
    page, proof = Page(), document["bundle"]
    fields = {name: proof[key] for name, key in _PROOF if proof[key] is not None}
    if proof["sealedTo"] is not None:
        fields["Sealed"] = f"{proof['sealedFrom']} to {proof['sealedTo']}"
    fields["Signed"] = _signed(proof)
    if proof["redacted"]:
        fields["Redacted"] = ", ".join(proof["redacted"])
    page.fields(fields, title="Bundle")
    if document["incident"] is not None:
        incident_part(page, document["incident"])
    page.table("Events", map(_event, document["events"]), EVENTS)
    for note in document["notes"]:
        page.line("Note", note)
    return page


def _signed(proof: Document) -> str:
    if proof["signedBy"] is None:
        return "no"
    return f"by {'the expected key' if proof['signerIsExpected'] else 'a key'} {proof['signedBy']}"


def _event(one: Document) -> Document:
    if one["detail"] is None:
        return one
    text = json_text(one["detail"])
    return {**one, "detail": text if len(text) <= DETAIL_CHARS_MAX else f"{text[:DETAIL_CHARS_MAX]}..."}
