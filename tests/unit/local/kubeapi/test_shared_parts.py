"""Versions of a custom resource share what an apply left alone, and none of them is ever changed in place."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.local.kubeapi.admission import Admission
from gpuledger.local.kubeapi.bodies import APPLY_PATCH, MERGE_PATCH, applied, patched
from gpuledger.local.kubeapi.custom import resources_of
from gpuledger.local.kubeapi.options import Query, write_options
from gpuledger.local.kubeapi.registry import ResourceRegistry
from gpuledger.local.kubeapi.requests import ApiRequest
from gpuledger.local.kubeapi.store import Store
from gpuledger.local.kubeapi.writing import Writer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PATH = "/apis/gpu.example.com/v1/widgets/w"
TEXT = {"type": "string"}


def part(size: Any) -> Any:
    """The schema of a spec or a status, with one for the size of its items."""
    many = {"type": "array", "items": TEXT}
    items = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": TEXT, "many": many, "size": size}},
    }
    texts = {"type": "object", "additionalProperties": TEXT}
    return {"type": "object", "properties": {"text": TEXT, "list": items, "map": texts}}


PLAIN = part({"type": "integer"})
DEFAULTED = part({"type": "integer", "default": 1})

LETTERS = st.sampled_from("abc")
ITEMS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"name": LETTERS}, optional={"many": st.lists(LETTERS, max_size=2), "size": st.integers(0, 1) | st.none()}
)
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "text": LETTERS | st.none(),
        "list": st.lists(ITEMS, max_size=3, unique_by=lambda item: item["name"]),
        "map": st.dictionaries(LETTERS, LETTERS | st.none()),
    },
)
STEPS = st.lists(st.tuples(st.sampled_from(["ann", "bob"]), st.sampled_from(["spec", "status"]), PARTS), max_size=5)


def widgets(schema_of_parts: Any) -> Any:
    """The resource whose spec and status have this schema."""
    schema = {"type": "object", "properties": dict.fromkeys(("spec", "status"), schema_of_parts)}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version["subresources"] = {"status": {}}
    names = {"plural": "widgets", "kind": "Widget"}
    [made] = resources_of(
        {"spec": {"group": "gpu.example.com", "scope": "Cluster", "names": names, "versions": [version]}}
    )
    return made


def writer() -> Writer:
    numbers: Iterator[int] = count(1)
    store, registry = Store(), ResourceRegistry(())
    admission = Admission(store, registry, str, {})
    return Writer(store, registry, lambda: NOW, lambda: f"uid-{next(numbers)}", admission)


async def apply(server: Writer, manager: str, name: str, value: Any) -> Any:
    target = server.registry.target(f"{PATH}/status" if name == "status" else PATH)
    options = write_options(Query({"fieldManager": [manager], "force": ["true"]}), "", "PatchOptions")
    config = {"apiVersion": "gpu.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, name: value}
    request = ApiRequest(target, NOW)
    change = applied(orjson.dumps(config), APPLY_PATCH, request, options)
    obj, _ = await server.update(request, change, options, applies=True, is_patch=True)
    return obj


@given(STEPS, st.sampled_from([PLAIN, DEFAULTED]))
def test_no_version_is_changed_in_place(steps: Any, later: Any) -> None:
    """Also where the schema has got defaults that what is stored was made without."""
    server = writer()
    kept: list[tuple[Any, bytes]] = []
    server.store.observe(lambda _, change: kept.append((change.object, orjson.dumps(change.object))))

    async def run() -> None:
        server.registry.serve("widgets", [widgets(PLAIN)])
        await apply(server, "ann", "spec", {"list": [{"name": "a"}]})
        await apply(server, "ann", "status", {"list": [{"name": "b"}]})
        server.registry.serve("widgets", [widgets(later)])
        for manager, name, value in steps:
            await apply(server, manager, name, value)

    asyncio.run(run())
    assert len(kept) > 1
    assert all(orjson.dumps(obj) == text for obj, text in kept)


async def test_a_patch_changes_no_version_in_place() -> None:
    """Also where it drops what the schema has no longer."""
    server = writer()
    server.registry.serve("widgets", [widgets(PLAIN)])
    stored = await apply(server, "ann", "spec", {"text": "a", "map": {"a": "a"}})
    server.registry.serve("widgets", [widgets({"type": "object", "properties": {"text": TEXT}})])
    request = ApiRequest(server.registry.target(PATH), NOW)
    options = write_options(Query(), "", "PatchOptions")
    change = patched(b'{"metadata":{"labels":{"a":"b"}}}', MERGE_PATCH, request, options)
    then, _ = await server.update(request, change, options, is_patch=True)
    assert then["spec"] == {"text": "a"}
    assert stored["spec"] == {"text": "a", "map": {"a": "a"}}


async def test_what_is_applied_again_is_kept_once() -> None:
    server = writer()
    server.registry.serve("widgets", [widgets(PLAIN)])
    await apply(server, "ann", "spec", {"text": "a", "map": {"a": "a"}})
    listed = {"list": [{"name": "a"}, {"name": "b"}]}
    versions = [await apply(server, "ann", "status", {"text": text, **listed}) for text in "abc"]
    specs, lists = ([one["spec"] for one in versions], [one["status"]["list"] for one in versions])
    owned = [one["metadata"]["managedFields"][1]["fieldsV1"] for one in versions[1:]]
    for [first, *others] in (specs, lists, owned):
        assert all(one is first for one in others)
    assert [one["status"]["text"] for one in versions] == ["a", "b", "c"]
