"""The committed JSON Schemas are those of the code, and never change incompatibly within a version."""

import json
from importlib import resources
from typing import Any

import pytest

from gpuledger.events.catalogue import render_schema, schema_name, schema_of
from gpuledger.events.payload import Payload
from gpuledger.events.registry import registry

FOLDER = resources.files("gpuledger.schemas") / "events"
MODELS = list(registry.models())


def incompatibilities(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Why data that was valid by `old` may not be read by `new`: fields gone, newly required, or of another type."""
    found = [f"{name} is gone" for name in old.get("properties", {}) if name not in new.get("properties", {})]
    found += [f"{name} is required now" for name in new.get("required", []) if name not in old.get("required", [])]
    for name, before in old.get("properties", {}).items():
        after = new.get("properties", {}).get(name)
        if after is not None and _types(before) - _types(after):
            found.append(f"{name} no longer takes {', '.join(sorted(_types(before) - _types(after)))}")
    for name, before in old.get("$defs", {}).items():
        found += [f"{name}: {reason}" for reason in incompatibilities(before, new.get("$defs", {}).get(name, {}))]
    return found


def _types(schema: dict[str, Any]) -> set[str]:
    if "anyOf" in schema:
        return set().union(*(_types(choice) for choice in schema["anyOf"]))
    return {schema.get("type") or schema.get("$ref", "any")}


@pytest.mark.parametrize("model", MODELS, ids=schema_name)
def test_committed_schema_is_fresh(model: type[Payload]) -> None:
    committed = (FOLDER / schema_name(model)).read_text()
    assert committed == render_schema(model), "run `make schemas`, and give the type a new version if data changed"


@pytest.mark.parametrize("model", MODELS, ids=schema_name)
def test_committed_schema_reads_on(model: type[Payload]) -> None:
    committed = json.loads((FOLDER / schema_name(model)).read_text())
    assert incompatibilities(committed, schema_of(model)) == []


def test_every_committed_schema_has_its_type() -> None:
    names = {path.name for path in FOLDER.iterdir() if path.name.endswith(".json")}
    assert names == {schema_name(model) for model in MODELS}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ({"properties": {"a": {"type": "string"}}}, {"properties": {}}, "a is gone"),
        ({"properties": {}}, {"properties": {"a": {"type": "string"}}, "required": ["a"]}, "a is required now"),
        (
            {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
            {"properties": {"a": {"type": "string"}}},
            "a no longer takes null",
        ),
        (
            {"$defs": {"Share": {"properties": {"a": {"type": "integer"}}}}},
            {"$defs": {"Share": {"properties": {"a": {"type": "string"}}}}},
            "Share: a no longer takes integer",
        ),
    ],
)
def test_incompatible_changes_are_found(old: dict[str, Any], new: dict[str, Any], reason: str) -> None:
    assert incompatibilities(old, new) == [reason]


def test_new_optional_fields_are_compatible() -> None:
    old = {"properties": {"a": {"type": "string"}}, "required": ["a"]}
    new = {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}
    assert incompatibilities(old, new) == []
