"""What the documentation shows as input is input that is taken, and nothing that is taken goes unsaid."""

import re
from pathlib import Path

from gpuledger.events.catalogue import registry
from gpuledger.events.publishing import SourceKind
from support.imports import jsonl, write
from support.paths import ROOT

OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def importable() -> dict[str, set[str]]:
    """The fields of what `import jsonl` takes, by event."""
    found = {
        f"{kind.AGGREGATE}.{kind.EVENT}": kind
        for kind in registry.models()
        if SourceKind.IMPORTERS in kind.PUBLISH_RULE.publishers
    }
    del found["source.completed"]
    return {
        name: {field if field_info.is_required() else f"{field}?" for field, field_info in kind.model_fields.items()}
        for name, kind in found.items()
    }


async def test_the_example_of_events_of_ones_own_is_taken(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```", OPERATIONS, re.MULTILINE | re.DOTALL)
    imported = await jsonl(write(tmp_path / "events.jsonl", *example.splitlines()))
    assert imported.reasons() == []
    shown = {event.type.removeprefix("io.gpuledger.").removesuffix(".v1") for event in imported.events}
    assert shown - {"source.completed"} == set(importable())


def test_every_field_that_can_be_imported_is_named() -> None:
    rows = re.findall(r"^\| `([a-z]+\.[a-z-]+)` \| (.*) \|$", OPERATIONS, re.MULTILINE)
    documented = {name: set(re.findall(r"`([a-z_]+\??)`", re.sub(r"\(.*?\)", "", fields))) for name, fields in rows}
    assert documented == importable()
