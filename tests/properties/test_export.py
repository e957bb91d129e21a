"""The pure parts of the export, for any events: nothing is lost, doubled or reordered, and bounds hold."""

from itertools import pairwise
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.export.decide import is_selected
from gpuledger.edge.export.format import Parcel, Place, body_of, document_of, encoded, grouped
from gpuledger.events.envelope import encode, parse
from gpuledger.events.nvsentinel import WIRE_NAMES
from gpuledger.events.position import Position
from gpuledger.ledger.identity import Anchor
from gpuledger.runtime.export_settings import ExportSettings, Selection
from support.exporting import reports

SIZES = st.lists(st.integers(2, 400), max_size=60)
TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=20)
FIELDS = st.fixed_dictionaries(
    {"fatal": st.booleans(), "healthy": st.booleans(), "monitor": TEXTS},
    optional={
        "codes": st.lists(TEXTS, max_size=3),
        "message": TEXTS,
        "action": st.sampled_from(["NONE", "RESTART_BM", "77"]),
        "metadata": st.dictionaries(TEXTS, TEXTS, max_size=3),
        "strategy": st.sampled_from(["execute-remediation", "store-only", "store-and-analyse"]),
    },
)
SHAPES = st.sampled_from(["gpuledger", "nvsentinel"])


def parcel(number: int, size: int) -> Parcel:
    document = orjson.dumps("x" * (size - 2))
    return Parcel(document, Position(1, number), Anchor(number, "", ""), str(number), "t", "s")


@given(SIZES, st.integers(1, 20), st.integers(1, 1000))
def test_groups_hold_everything_once_in_order_within_their_bounds(
    sizes: list[int], events_max: int, bytes_max: int
) -> None:
    parcels = [parcel(number, size) for number, size in enumerate(sizes, 1)]
    groups = list(grouped(parcels, events_max, bytes_max))
    assert [one for group in groups for one in group] == parcels
    for group in groups:
        assert 1 <= len(group) <= events_max
        assert len(group) == 1 or len(body_of(group, is_batch=True)) <= bytes_max + 2
    for before, after in pairwise(groups):
        assert len(before) == events_max or sum(len(one.document) + 1 for one in [*before, after[0]]) > bytes_max


@given(SIZES.filter(bool))
def test_the_body_of_a_batch_is_the_list_of_its_documents(sizes: list[int]) -> None:
    parcels = [parcel(number, size) for number, size in enumerate(sizes, 1)]
    assert orjson.loads(body_of(parcels, is_batch=True)) == [orjson.loads(one.document) for one in parcels]
    assert body_of(parcels[:1], is_batch=False) == parcels[0].document


@given(FIELDS, SHAPES, st.integers(1, 2**62))
def test_a_document_is_json_with_the_id_of_the_event_whatever_it_holds(
    fields: dict[str, Any], shape: Any, sequence: int
) -> None:
    event = parse(encode(reports([1], **fields)[0]))
    settings = ExportSettings("https://e.example/", health_shape=shape)
    sent = orjson.loads(encoded(document_of(event, Place("l", Position(1, sequence), 10**18), settings)))
    assert (sent["id"], sent["ledgerposition"]) == (event.id, f"1/{sequence}")
    assert all(name.isalnum() and name == name.lower() for name in sent)
    if shape == "nvsentinel":
        health = sent["data"]["healthEvent"]
        assert health["isFatal"] is fields["fatal"]
        assert health.keys() <= {*WIRE_NAMES.values(), "version", "nodeName"}


@given(FIELDS, st.dictionaries(st.sampled_from(["fatal", "healthy", "codes"]), st.lists(st.booleans(), min_size=1)))
def test_more_conditions_select_less_and_more_selections_more(
    fields: dict[str, Any], where: dict[str, list[bool]]
) -> None:
    event = parse(encode(reports([1], **fields)[0]))
    narrow = Selection("node.*", {name: tuple(values) for name, values in where.items()})
    wide = Selection("node.*", dict(list(narrow.where.items())[:1]))
    assert is_selected(event, [wide]) or not is_selected(event, [narrow])
    assert is_selected(event, [narrow, wide]) == is_selected(event, [wide])
