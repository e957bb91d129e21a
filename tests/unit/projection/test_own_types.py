"""A projection that folds or decides another type of our own events has another version.

Only therefore may a build pass over such an event of a type that it does not know: what it does not fold changes no row
of any of its versions. After a change: raise the version, run with `GPULEDGER_UPDATE_GOLDEN=1`, and review the file.
"""

import os
from typing import NamedTuple

import orjson
import pytest

from gpuledger.events.catalogue import registry
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import SourceKind
from gpuledger.projection.definition import Projection
from gpuledger.tools.queries.backend import all_projections
from support.paths import ROOT

RECORDED = ROOT / "tests/golden/own_types.json"


class OwnTypes(NamedTuple):
    """A projection's version, and the types of our own events that it folds or decides."""

    version: int
    types: list[str]


def is_own(model: type[Payload]) -> bool:
    """Whether only services of ours publish the type."""
    return not {SourceKind.AGENTS, SourceKind.IMPORTERS} & set(model.PUBLISH_RULE.publishers)


def own_types(projection: Projection) -> OwnTypes:
    """What the projection folds or decides in this build."""
    folded = {model for model in projection.handlers if is_own(model)}
    decided = {model for model in registry.models() if projection.name in model.PUBLISH_RULE.publishers}
    types = {f"{model.AGGREGATE}.{model.EVENT}.v{model.VERSION}" for model in folded | decided}
    return OwnTypes(projection.version, sorted(types))


def problem(recorded: OwnTypes | None, found: OwnTypes) -> str | None:
    """What is wrong with a change of what a projection folds; None: nothing, once it is recorded."""
    if recorded is None or recorded.types == found.types or found.version > recorded.version:
        return None
    return f"It folds or decides {sorted(set(recorded.types) ^ set(found.types))} and has its version before."


def test_a_projection_that_folds_other_types_of_our_own_has_a_newer_version() -> None:
    recorded = {name: OwnTypes(*found) for name, found in orjson.loads(RECORDED.read_bytes())["projections"].items()}
    found = {projection.name: own_types(projection) for projection in all_projections()}
    wrong = {name: text for name, one in found.items() if (text := problem(recorded.get(name), one))}
    assert not wrong
    if os.environ.get("GPULEDGER_UPDATE_GOLDEN"):
        projections = {name: list(one) for name, one in sorted(found.items())}
        document = orjson.loads(RECORDED.read_bytes()) | {"projections": projections}
        RECORDED.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    else:
        assert found == recorded, "run with GPULEDGER_UPDATE_GOLDEN=1, and review the file"


@pytest.mark.parametrize(
    ("version", "types", "is_wrong"),
    [(1, ["a.b.v1"], False), (1, ["a.b.v1", "a.c.v1"], True), (1, ["a.b.v2"], True), (1, [], True), (2, [], False)],
)
def test_another_set_of_types_needs_another_version(version: int, types: list[str], *, is_wrong: bool) -> None:
    assert (problem(OwnTypes(1, ["a.b.v1"]), OwnTypes(version, types)) is not None) == is_wrong


def test_a_type_of_our_own_that_came_later_is_introduced() -> None:
    """Otherwise the builds before would mark its events as of an unknown type, and this one would not."""
    first = orjson.loads(RECORDED.read_bytes())["first_release"]
    later = {model.TYPE for model in registry.models() if is_own(model)} - set(first)
    assert later <= registry.introduced
