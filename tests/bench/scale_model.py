"""What a fleet of so many cards needs for so many years, from a few measured costs: docs/scale.md. Pure.

Every cost is a figure of `--only scale`, which prints the model beside what it measures.
"""

from typing import Final, NamedTuple

from bench.fleet_day import EVENTS_PER_POD

DAYS_PER_YEAR: Final = 365
SECONDS_PER_DAY: Final = 86_400
SET_UP_EVENTS_PER_CARD: Final = 9
"""Nodes, labels, features, cards, components and their preparation, once, for nodes of eight cards."""


CHECKS: Final = 3
GANG_PODS: Final = 8
"""The pods with preflight checks whose costs are measured: with so many checks, in gangs of so many."""

CHECKED_LOG_BYTES: Final = 10_100
CHECKED_TABLE_BYTES: Final = 2_100
"""What such a pod takes in the stream and in PostgreSQL, measured with 3,200 of them; an archive was not measured."""

SUBJECTS_PER_CARD: Final = 10
"""Those of a card and its part of those of its node; pods, claims and containers share theirs."""

SUBJECT_BYTES: Final = 350
"""Of NATS's memory, as `--only subjects` measures it."""

NATS_BYTES: Final = 50e6
"""What NATS takes besides."""


class Load(NamedTuple):
    """How many pods hold a card in a day, one after the other or side by side."""

    name: str
    pods_per_card_day: int


class Costs(NamedTuple):
    """Measured: bytes of an event in the stream, in an archive, and in PostgreSQL with its indexes; events a second."""

    log_bytes: float
    archive_bytes: float
    table_bytes: float
    projected_per_s: float
    rebuilt_per_s: float


class Capacity(NamedTuple):
    """What is needed. `busy` is the share of the time for which one process projects."""

    events_per_day: float
    events_per_s: float
    events: float
    log_bytes: float
    archive_bytes: float
    table_bytes: float
    nats_bytes: float
    busy: float
    rebuild_s: float


TRAINING: Final = Load("training", 4)
MIXED: Final = Load("mixed", 20)
DENSE: Final = Load("inference, dense", 100)
LOADS: Final = (TRAINING, MIXED, DENSE)
CARDS: Final = (1_000, 10_000, 100_000)
YEARS: Final = (1, 5)
CHECKED_PODS: Final = (1_000, 10_000, 100_000)


MEASURED: Final = Costs(
    log_bytes=677,
    archive_bytes=73,
    table_bytes=558,
    projected_per_s=2_910,
    rebuilt_per_s=3_830,
)
"""What `--only scale` measured; the rates are those of the larger day, beside other work on the machine.

That was of eleven projections. The rate of projecting is less by what the four since then add in processor time.
"""


def capacity(cards: int, years: float, load: Load, costs: Costs) -> Capacity:
    """The needs of a fleet at the end of so many years."""
    per_day = float(cards * load.pods_per_card_day * EVENTS_PER_POD)
    per_s = per_day / SECONDS_PER_DAY
    events = per_day * DAYS_PER_YEAR * years + cards * SET_UP_EVENTS_PER_CARD
    return Capacity(
        events_per_day=per_day,
        events_per_s=per_s,
        events=events,
        log_bytes=events * costs.log_bytes,
        archive_bytes=events * costs.archive_bytes,
        table_bytes=events * costs.table_bytes,
        nats_bytes=NATS_BYTES + cards * SUBJECTS_PER_CARD * SUBJECT_BYTES,
        busy=per_s / costs.projected_per_s,
        rebuild_s=events / costs.rebuilt_per_s,
    )


def checked_events(checks: int, gang_pods: int) -> float:
    """The events of a pod that passes its checks at once, with its part of those of its gang (0: it has none).

    It is observed new, with its node, and as each check begins and ends; then it is gone. A gang is configured as its
    first pod comes and as it is complete, and dissolved.
    """
    return 3 + 2 * checks + (3 / gang_pods if gang_pods else 0)


def checks_table() -> str:
    """What pods with preflight checks add in a year, as the page has it."""
    head = ["pods with checks a day", "events a day", "log in a year", "PostgreSQL in a year"]
    rows = []
    for pods in CHECKED_PODS:
        sizes = [_bytes(pods * DAYS_PER_YEAR * size) for size in (CHECKED_LOG_BYTES, CHECKED_TABLE_BYTES)]
        rows.append([f"{pods:,}", _count(pods * checked_events(CHECKS, GANG_PODS)), *sizes])
    return _markdown(head, rows)


def events_table() -> str:
    """Events a day and in all, by load and size, as the page has them."""
    head = ["pods on a card a day", "cards", "events a day", "events a second", *(f"in {_years(one)}" for one in YEARS)]
    rows = []
    for load in LOADS:
        for cards in CARDS:
            needs = [capacity(cards, years, load, MEASURED) for years in YEARS]
            first, totals = needs[0], [_count(one.events) for one in needs]
            rows.append([_name(load), f"{cards:,}", _count(first.events_per_day), _rate(first.events_per_s), *totals])
    return _markdown(head, rows)


def needs_table(load: Load) -> str:
    """Bytes, memory and times of a load, by size and years, as the page has them."""
    head = ["cards", "years", "log", "archive", "PostgreSQL", "memory of NATS", "projecting", "rebuild from nothing"]
    rows = []
    for cards in CARDS:
        for years in YEARS:
            one = capacity(cards, years, load, MEASURED)
            busy = f"{_share(one.busy)} of the time"
            sizes = [_bytes(size) for size in (one.log_bytes, one.archive_bytes, one.table_bytes, one.nats_bytes)]
            rows.append([f"{cards:,}", str(years), *sizes, busy, _duration(one.rebuild_s)])
    return _markdown(head, rows)


def _name(load: Load) -> str:
    return f"{load.pods_per_card_day} ({load.name})"


def _years(years: int) -> str:
    return "a year" if years == 1 else f"{years} years"


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rounded(value: float) -> str:
    """Two digits; more are not known."""
    digits = 0 if value >= 10 else 1
    return f"{float(f'{value:.2g}'):,.{digits}f}"


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    size, unit = next(((size, unit) for size, unit in units if value >= size), units[-1])
    return f"{_rounded(value / size)} {unit}".strip()


def _count(value: float) -> str:
    return _scaled(value, ((1e9, "billion"), (1e6, "million"), (1e3, "thousand"), (1, "")))


def _bytes(value: float) -> str:
    return _scaled(value, ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB")))


def _rate(value: float) -> str:
    return _rounded(value)


def _share(value: float) -> str:
    return f"{float(f'{100 * value:.2g}'):g} %"


def _duration(value: float) -> str:
    return _scaled(value, ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "s")))
