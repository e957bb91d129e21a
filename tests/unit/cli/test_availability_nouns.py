"""Rows of slices, pools and claims from a folded state, without a server."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.cli.get.availability_nouns import AVAILABILITY_NOUNS, CLAIMS, POOLS, SLICES
from gpuledger.cli.get.nouns import COMPUTED, KINDS, NOUNS, noun_to_get
from gpuledger.cli.render import Output
from gpuledger.events.payload import Payload
from support.dra_facts import (
    DRIVER,
    MEMORY,
    allocated,
    availability_of,
    device,
    fact_at,
    published,
    released,
    requested,
    withdrawn,
)

SHARE = {MEMORY: "1Gi"}
FACTS: tuple[tuple[str, Payload], ...] = (
    ("s1", published("p", [device("a"), device("m", memory="2Gi")], node="w1")),
    ("s1", published("p", [device("m", memory="2Gi", tainted=True)], node="w1")),
    ("s1", withdrawn()),
    ("s2", published("p", [device("a")], node="w2", slices=2)),
    ("s2", published("p", [device("a"), device("b")], node="w2", generation=2)),
    ("s3", published("p", [device("c", tainted=True)])),
    ("ns/x", requested()),
    ("ns/x", allocated(("p", "a", None))),
    ("ns/x", allocated(("p", "m", "x"), consumed=SHARE)),
    ("ns/y", allocated(("p", "m", "y"), ("p", "b", None), consumed=SHARE)),
    ("ns/y", released()),
    ("ns/z", allocated(("p", "a", None), admin=True)),
)


def test_a_pool_has_a_row_for_each_place_that_it_is_seen_from() -> None:
    state = availability_of(
        [
            fact_at(0, "s1", published("p", [device("a")], node="w1")),
            fact_at(0, "s2", published("p", [device("b")], node="w2")),
            fact_at(0, "s3", published("p", [device("c"), device("d")])),
        ]
    )
    rows = list(POOLS.rows(state))
    assert [(row["nodeName"], row["totalDevices"]) for row in rows] == [(None, 2), ("w1", 1), ("w2", 1)]
    assert POOLS.shown(rows, Output.NAME) == [{"name": f"{DRIVER}/p"}]
    assert len({tuple(row[part] for part in POOLS.key) for row in rows}) == 3


def test_a_pool_that_offers_nothing_shows_why_with_its_numbers() -> None:
    (twice,) = POOLS.rows(availability_of([fact_at(0, "s", published("p", [device("a"), device("a")]))]))
    assert (twice["valid"], twice["validationError"]) == (False, "device a appears twice in s")
    (fewer,) = POOLS.rows(availability_of([fact_at(0, "s", published("p", [device("a")], slices=3))]))
    assert (fewer["complete"], fewer["totalDevices"], fewer["unavailableDevices"]) == (False, 1, 1)
    assert POOLS.shown([fewer], Output.TABLE)[0]["slices"] == "1/3"
    assert "slices" not in POOLS.shown([fewer], Output.JSON)[0]


def test_a_pool_that_may_yet_be_valid_is_neither_valid_nor_invalid() -> None:
    state = availability_of([fact_at(0, "s", published("p", [device("a")], slices=3))])
    for noun in (SLICES, POOLS):
        (row,) = noun.rows(state)
        assert (row["complete"], row["valid"]) == (False, None)
        assert noun.shown([row], Output.JSON)[0]["valid"] is None
        assert [noun.shown([row], output)[0]["valid"] for output in (Output.TABLE, Output.WIDE)] == ["unknown"] * 2


def test_slices_of_an_older_generation_are_named_with_the_number_that_is_missing() -> None:
    facts = [
        fact_at(0, "s1", published("p", [device("a")], slices=2)),
        fact_at(1, "s2", published("p", [device("b")], slices=2, generation=2)),
    ]
    (row,) = POOLS.rows(availability_of(facts))
    assert (row["valid"], row["validationError"]) == (
        None,
        "1 of 2 slices of generation 2 are there. slice s1 is of generation 1, the pool is of generation 2",
    )


def test_a_shared_device_with_a_taint_is_allocated_and_not_to_be_had() -> None:
    facts = [
        fact_at(0, "s", published("p", [device("m", memory="2Gi", tainted=True)])),
        fact_at(1, "ns/x", allocated(("p", "m", "x"), consumed=SHARE)),
    ]
    (row,) = SLICES.rows(availability_of(facts))
    counted = ("total", "allocated", "available", "partial", "unavailable")
    assert [row[name] for name in counted] == [1, 1, 0, 0, 0]


def test_a_claim_that_was_made_anew_holds_what_it_holds_now() -> None:
    facts = [
        fact_at(1, "ns/x", allocated(("p", "a", None), ("p", "b", None))),
        fact_at(2, "ns/x", allocated(("p", "b", None))),
        fact_at(3, "ns/w", requested(owner="Pod/w")),
    ]
    waits, holds = CLAIMS.rows(availability_of(facts))
    assert (waits["name"], waits["phase"], waits["devices"], waits["owner"]) == ("w", "Pending", 0, "Pod/w")
    assert (holds["phase"], holds["devices"], holds["requests"]) == ("Allocated", 1, 1)
    assert CLAIMS.shown([waits, holds], Output.NAME) == [{"name": "ns/w"}, {"name": "ns/x"}]


@given(st.lists(st.sampled_from(FACTS), max_size=14))
def test_the_numbers_add_up(facts: list[tuple[str, Payload]]) -> None:
    state = availability_of([fact_at(at, subject, data) for at, (subject, data) in enumerate(facts)])
    slices: Counter[str] = Counter()
    for row in SLICES.rows(state):
        counted = {name: _number(row, name) for name in ("total", "allocated", "available", "unavailable")}
        assert min(counted.values()) >= 0
        assert counted["total"] == counted["allocated"] + counted["available"] + counted["unavailable"]
        slices.update(counted)
    pools: Counter[str] = Counter()
    for row in POOLS.rows(state):
        pools.update({name: _number(row, f"{name}Devices") for name in slices})
    assert pools == slices


def test_every_kind_is_found_by_its_words_and_by_no_other_kinds() -> None:
    assert list(AVAILABILITY_NOUNS) == list(COMPUTED)
    assert set(COMPUTED) <= set(KINDS)
    for name, aliases in COMPUTED.items():
        for word in (name, name.upper(), *aliases):
            assert noun_to_get(word) is AVAILABILITY_NOUNS[name]
    words = [word for noun in NOUNS.values() for word in noun.aliases]
    words += [word for aliases in COMPUTED.values() for word in aliases]
    assert len(words) == len(set(words))


def _number(row: Mapping[str, object], name: str) -> int:
    number = row[name]
    assert isinstance(number, int)
    return number
