"""What a fleet of so many cards needs for so many years, from a few measured costs: docs/scale.md. Pure.

Every cost is a figure of `--only scale`, which prints the model beside what it measures.
"""

from typing import Final, NamedTuple

from bench.fleet_day import EVENTS_PER_POD

DAYS_PER_YEAR: Final = 365
SECONDS_PER_DAY: Final = 86_400
SET_UP_EVENTS_PER_CARD: Final = 9
"""Nodes, labels, features, cards, components and their preparation, once, for nodes of eight cards."""


class Load(NamedTuple):
    """How many pods hold a card in a day, one after the other or side by side."""

    name: str
    pods_per_card_day: int


class Costs(NamedTuple):
    """Measured: bytes of an event in the stream and in PostgreSQL with its indexes, and events a second.

    `subject_bytes` is what NATS keeps in memory for each subject, of which an event adds `subjects_per_event`.
    """

    log_bytes: float
    table_bytes: float
    subjects_per_event: float
    subject_bytes: float
    projected_per_s: float
    rebuilt_per_s: float


class Capacity(NamedTuple):
    """What is needed. `busy` is the share of the time for which one process projects."""

    events_per_day: float
    events_per_s: float
    events: float
    log_bytes: float
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
        table_bytes=events * costs.table_bytes,
        nats_bytes=events * costs.subjects_per_event * costs.subject_bytes,
        busy=per_s / costs.projected_per_s,
        rebuild_s=events / costs.rebuilt_per_s,
    )
