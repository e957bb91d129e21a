"""Reports on dynamic resource allocation, over what made-up histories fold to, and counted hour by hour as well."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier

from gpuledger.db.views import view_of
from gpuledger.domain.dra.state import Availability
from support.dra_facts import (
    DRIVER,
    MEMORY,
    Held,
    allocated,
    availability_of,
    device,
    fact_at,
    published,
    released,
    requested,
    withdrawn,
)
from support.events import RecordedFact, hour

OTHER = "other.example.com"
LAST = 40
"""The hour at which every made-up history ends; whatever is open then becomes a row that ends."""

Row = dict[str, Any]

HISTORY = (
    fact_at(0, "s1", published("n1", [device("a"), device("b"), device("m", memory="40Gi")], node="n1")),
    fact_at(0, "s2", published("n1", [device("a")], node="n1", driver=OTHER)),  # the same name, another driver's
    fact_at(1, "ann/one", requested(owner="Pod/trainer")),
    fact_at(2, "ann/one", allocated(("n1", "a", None), ("n1", "b", None), owner="Pod/trainer")),
    fact_at(4, "bob/part", allocated(("n1", "m", "x"), consumed={MEMORY: "10Gi"})),
    fact_at(5, "bob/rest", allocated(("n1", "m", "y"), consumed={MEMORY: "30Gi"})),
    fact_at(6, "ops/look", allocated(("n1", "a", None), admin=True)),
    fact_at(8, "bob/rest", released()),
    fact_at(10, "ann/one", released()),
    fact_at(11, "eve/other", allocated(("n1", "a", None), driver=OTHER)),
    fact_at(12, "ann/one", allocated(("n1", "b", None))),
    fact_at(13, "s1", published("n1", [device("a"), device("m", memory="40Gi")], node="n1", generation=2)),
    fact_at(14, "s2", withdrawn()),
    fact_at(16, "ops/look", released()),
)


class Span(NamedTuple):
    """That a claim had a device for some hours, the last one not among them."""

    claim: str
    place: tuple[str, str, str]
    first: int
    last: int
    admin: bool


@pytest.fixture
def database(migrated_url: str) -> str:
    _load(migrated_url, availability_of(HISTORY))
    return migrated_url


def test_device_allocations(database: str) -> None:
    rows = _ask(database, "device-allocations")
    found = [(row["driver"], row["device"], row["namespace"], row["claim"], row["share"]) for row in rows]
    assert found == [
        (DRIVER, "a", "ann", "one", None),
        (DRIVER, "a", "ops", "look", None),
        (DRIVER, "b", "ann", "one", None),
        (DRIVER, "b", "ann", "one", None),
        (DRIVER, "m", "bob", "part", "x"),
        (DRIVER, "m", "bob", "rest", "y"),
        (OTHER, "a", "eve", "other", None),
    ]
    assert [(row["valid_from"], row["valid_to"], row["hours"]) for row in rows if row["valid_to"]] == [
        (hour(2), hour(10), 8),
        (hour(6), hour(16), 10),
        (hour(2), hour(10), 8),
        (hour(5), hour(8), 3),
    ]
    assert [row["consumed"] for row in rows if row["share"]] == [{MEMORY: "10Gi"}, {MEMORY: "30Gi"}]
    assert [row["claim"] for row in rows if row["admin_access"]] == ["look"]


def test_what_is_still_held_counts_to_now(database: str) -> None:
    for report in ("device-allocations", "never-released"):
        with psycopg.connect(database) as connection:
            off = connection.execute(
                f"SELECT hours - extract(epoch FROM now() - valid_from) / 3600 FROM {view_of(report)} "
                "WHERE device = 'm' AND claim = 'part'".encode()
            ).fetchall()
        assert [abs(one) < Decimal("1e-8") for (one,) in off] == [True], report


def test_gpu_hours_divide_a_device_among_its_holders(database: str) -> None:
    _end_everything(database)
    rows = {
        f"{row.pop('namespace')}/{row.pop('claim')}": tuple(row.values()) for row in _ask(database, "dra-gpu-hours")
    }
    assert rows == {
        "ann/one": (2, 8 + 8 + (LAST - 12), 0),
        "bob/part": (1, 1 + Decimal("1.5") + (LAST - 8), 0),
        "bob/rest": (1, Decimal("1.5"), 0),
        "eve/other": (1, LAST - 11, 0),
        "ops/look": (1, 0, 10),
    }


def test_availability(database: str) -> None:
    rows = [row for row in _ask(database, "availability") if row["driver"] == DRIVER]
    counted = ("total", "allocated", "available", "partial", "unavailable")
    assert [(row["valid_from"], *(row[name] for name in counted)) for row in rows] == [
        (hour(0), 3, 0, 3, 0, 0),
        (hour(2), 3, 2, 1, 0, 0),
        (hour(4), 3, 3, 0, 1, 0),
        (hour(5), 3, 3, 0, 0, 0),
        (hour(8), 3, 3, 0, 1, 0),
        (hour(10), 3, 1, 2, 1, 0),
        (hour(12), 3, 2, 1, 1, 0),
        (hour(13), 2, 1, 1, 1, 0),
    ]
    assert {(row["pool"], row["node"], row["complete"], row["valid"]) for row in rows} == {("n1", "n1", True, True)}
    assert [row["generation"] for row in rows] == [1] * 7 + [2]
    assert [row["valid_to"] for row in rows] == [*(row["valid_from"] for row in rows[1:]), None]


def test_devices_that_nobody_can_have_are_unavailable(migrated_url: str) -> None:
    shared = device("m", memory="8Gi", tainted=True)
    _load(
        migrated_url,
        availability_of(
            [
                fact_at(0, "s1", published("p", [device("a", tainted=True), shared, device("b")])),
                fact_at(1, "ann/x", allocated(("p", "m", "s"), consumed={MEMORY: "1Gi"})),
            ]
        ),
    )
    row = _ask(migrated_url, "availability")[-1]
    assert (row["total"], row["allocated"], row["available"], row["unavailable"], row["node"]) == (3, 1, 1, 1, None)


def test_exhausted(database: str) -> None:
    rows = [tuple(row.values()) for row in _ask(database, "exhausted")]
    assert rows == [
        (DRIVER, "n1", "n1", hour(4), hour(10), 6, 3, 3, 0),
        (OTHER, "n1", "n1", hour(11), hour(14), 3, 1, 1, 0),
    ]


def test_a_pool_that_went_and_came_back_was_exhausted_twice(migrated_url: str) -> None:
    one = published("p", [device("a")])
    facts = [
        fact_at(0, "s", one),
        fact_at(1, "ann/x", allocated(("p", "a", None))),
        fact_at(2, "s", withdrawn()),
        fact_at(4, "s", one),
    ]
    _load(migrated_url, availability_of(facts))
    assert [(row["valid_from"], row["valid_to"]) for row in _ask(migrated_url, "exhausted")] == [
        (hour(1), hour(2)),
        (hour(4), None),
    ]


def test_never_released(database: str) -> None:
    rows = _ask(database, "never-released")
    assert [(row["vanished"], row["driver"], row["device"], row["claim"], row["valid_from"]) for row in rows] == [
        (True, OTHER, "a", "other", hour(11)),
        (True, DRIVER, "b", "one", hour(12)),
        (False, DRIVER, "m", "part", hour(4)),
    ]
    assert [row["owner"] for row in rows] == [None, None, None]
    _load(database, availability_of([fact_at(2, "ann/one", allocated(("n1", "a", None), owner="Pod/trainer"))]))
    assert [row["owner"] for row in _ask(database, "never-released")] == ["Pod/trainer"]


@pytest.mark.parametrize("seed", [0, 3, 4, 5])
def test_a_random_history_counted_hour_by_hour(migrated_url: str, seed: int) -> None:
    facts, spans = _random_history(random.Random(seed))
    _load(migrated_url, availability_of(facts))
    _end_everything(migrated_url)
    hours, admin = _hours_by_claim(spans)
    rows = {f"{row['namespace']}/{row['claim']}": row for row in _ask(migrated_url, "dra-gpu-hours")}
    assert rows.keys() == hours.keys() | admin.keys()
    for claim, row in rows.items():
        assert Fraction(row["gpu_hours"]) == round(hours[claim], 6), claim
        assert row["admin_hours"] == admin[claim], claim
    assert sum(hours.values()) == len(_busy(spans))
    used = _busy(spans)
    taken = {at for at in range(LAST) if {place for place, when in used if when == at} == set(PLACES)}
    exhausted = {at for row in _ask(migrated_url, "exhausted") for at in _hours(row["valid_from"], row["valid_to"])}
    assert exhausted == taken


PLACES = ((DRIVER, "p", "a"), (DRIVER, "p", "m"))


def _random_history(chance: random.Random) -> tuple[list[RecordedFact], list[Span]]:
    """Claims that come and go in a pool of one whole and one shared device; the shares leave something."""
    facts = [fact_at(0, "s", published("p", [device("a"), device("m", memory="1Ti")]))]
    spans: list[Span] = []
    free_from = 1
    for number in range(12):
        claim, first, last = f"n{number % 3}/c{number}", chance.randrange(1, LAST), LAST
        last = min(LAST, first + chance.randrange(1, 12))
        kind = chance.choice(["alone", "share", "share", "admin"])
        held: Held = ("p", "m", f"share-{number}") if kind == "share" else ("p", "a", None)
        if kind == "alone":
            first, last = free_from, min(LAST, free_from + chance.randrange(1, 9))
            free_from = last
        if first == last:
            continue
        spans.append(Span(claim, (DRIVER, "p", held[1]), first, last, kind == "admin"))
        facts.append(fact_at(first, claim, allocated(held, admin=kind == "admin", consumed={MEMORY: "1Gi"})))
        if last < LAST:
            facts.append(fact_at(last, claim, released()))
    return sorted(facts, key=lambda one: one.at), spans


def _hours_by_claim(spans: Iterable[Span]) -> tuple[dict[str, Fraction], dict[str, int]]:
    """Device-hours and hours of administrators' access, hour for hour."""
    hours: dict[str, Fraction] = defaultdict(Fraction)
    admin: dict[str, int] = defaultdict(int)
    spans = list(spans)
    for at in range(LAST):
        for place in PLACES:
            here = [one for one in spans if one.place == place and one.first <= at < one.last]
            holders = [one.claim for one in here if not one.admin]
            for claim in holders:
                hours[claim] += Fraction(1, len(holders))
            for one in here:
                admin[one.claim] += one.admin
    return hours, admin


def _busy(spans: Iterable[Span]) -> set[tuple[tuple[str, str, str], int]]:
    return {(one.place, at) for one in spans if not one.admin for at in range(one.first, one.last)}


def _hours(first: datetime, last: datetime) -> Iterator[int]:
    return (at for at in range(LAST) if first <= hour(at) < last)


def _load(database_url: str, state: Availability) -> None:
    """Put what was folded in the place of all rows."""
    with psycopg.connect(database_url) as connection:
        for name, table in state.tables().items():
            connection.execute(SQL("TRUNCATE {}").format(Identifier("gpuledger_live", name)))
            with connection.cursor().copy(SQL("COPY {} FROM STDIN").format(Identifier("gpuledger_live", name))) as copy:
                for row in table.rows.values():
                    copy.write_row(row)


def _end_everything(database_url: str) -> None:
    """Have every range end at the last hour, so that nothing depends on when the test runs."""
    with psycopg.connect(database_url) as connection:
        for table in ("device_allocation", "pool_availability"):
            statement = SQL("UPDATE {} SET valid_to = %s WHERE valid_to IS NULL")
            connection.execute(statement.format(Identifier("gpuledger_live", table)), [hour(LAST)])


def _ask(database_url: str, report: str) -> list[Row]:
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        return connection.execute(f"SELECT * FROM {view_of(report)}".encode()).fetchall()
