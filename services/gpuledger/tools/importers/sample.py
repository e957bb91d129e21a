"""Generates a synthetic file in Titan's format from a seed, for demonstrations and tests.

Like the real one it has successive lives in a place, GPUs that move, failures of both kinds, failures without a life,
and a few contradictions. It is no model of Titan: its rates only make each of these occur.
"""

import csv
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import NamedTuple, TextIO

from gpuledger.tools.importers.titan import COLUMNS, EVENTS

START = datetime(2014, 1, 6, 8, 0, 0)  # noqa: DTZ001 - written without a zone, as the format has it
END = datetime(2019, 8, 1, 20, 7, 33)  # noqa: DTZ001
DEVICES_DEFAULT = 1_000
DEVICES_MIN = 8

DEVICES_PER_LOCATION = 1.6
SPARES_PER_LIFE = 0.1
FAILING_PART = 0.35
LONE_FAILURE_PART = 0.03
DOUBLE_OCCUPANCIES = 2
DOUBLE_PLACES = 1

_SERIAL_START = 320_114_000_000
_OVERLAP = timedelta(hours=36)
_LAST_SWAP = END - timedelta(days=30)


class Life(NamedTuple):
    """One row; without `insert` it is a failure without a life."""

    serial: str
    location: str
    insert: datetime | None
    remove: datetime
    out: bool
    event: str

    def row(self) -> tuple[str, ...]:
        """The row as it is written."""
        if self.insert is None:
            return (self.serial, self.location, "", str(self.remove), "", "", self.event)
        seconds = round((self.remove - self.insert).total_seconds())
        out = "TRUE" if self.out else "FALSE"
        return (self.serial, self.location, str(self.insert), str(self.remove), str(seconds), out, self.event)


def write_titan_sample(file: TextIO, *, seed: int, devices: int = DEVICES_DEFAULT) -> None:
    """Write a sample with about `devices` GPUs; the same seed and size give the same bytes.

    `file` must be open with `newline=""`.

    Raises:
        ValueError: fewer than eight devices, too few to contradict each other.
    """
    if devices < DEVICES_MIN:
        raise ValueError(f"A sample needs at least {DEVICES_MIN} devices, not {devices}.")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(life.row() for life in sample_lives(Random(seed), devices))  # noqa: S311 - no secret


def sample_lives(random: Random, devices: int) -> list[Life]:
    """The rows, shuffled, because no importer may rely on their order."""
    serials = (f"{_SERIAL_START + 17 * number:013}" for number in count())
    lives: list[Life] = []
    spares: list[tuple[datetime, str]] = []
    for location in locations(max(round(devices / DEVICES_PER_LOCATION), 4)):
        lives.extend(_history(random, location, serials, spares))
    lives.extend(_lone_failures(random, lives))
    lives.extend(_contradictions(random, lives, serials))
    random.shuffle(lives)
    return lives


def locations(quantity: int) -> Iterator[str]:
    """That many places, named as on Titan: cabinet, cage, slot and node."""
    for number in range(quantity):
        node, slot, cage = number % 4, number // 4 % 8, number // 32 % 3
        cabinet = number // 96
        yield f"c{cabinet % 25}-{cabinet // 25}c{cage}s{slot}n{node}"


def _history(
    random: Random, location: str, serials: Iterator[str], spares: list[tuple[datetime, str]]
) -> Iterator[Life]:
    """The successive lives in one place, up to the end of the data."""
    began = START + timedelta(seconds=random.randrange(90 * 86_400))
    while True:
        serial = _next_serial(random, began, serials, spares)
        ended = began + timedelta(seconds=random.randrange(200 * 86_400, 3_000 * 86_400))
        if ended >= _LAST_SWAP:
            yield Life(serial, location, began, END, False, "")
            return
        event = random.choice(EVENTS) if random.random() < FAILING_PART else ""
        out = event != "" and random.random() < 0.9
        yield Life(serial, location, began, ended, out, event)
        if not out:
            spares.append((ended, serial))
        began = ended + timedelta(seconds=random.randrange(600, 86_400))


def _next_serial(random: Random, time: datetime, serials: Iterator[str], spares: list[tuple[datetime, str]]) -> str:
    """Now and then a GPU that was taken out of another place before, otherwise a new one."""
    ready = [spare for spare in spares if spare[0] < time]
    if ready and random.random() < SPARES_PER_LIFE:
        spare = random.choice(ready)
        spares.remove(spare)
        return spare[1]
    return next(serials)


def _lone_failures(random: Random, lives: list[Life]) -> list[Life]:
    chosen = random.sample(lives, max(round(len(lives) * LONE_FAILURE_PART), 2))
    return [
        Life(life.serial, life.location, None, _within(random, life), False, EVENTS[number % 2])
        for number, life in enumerate(chosen)
    ]


def _contradictions(random: Random, lives: list[Life], serials: Iterator[str]) -> Iterator[Life]:
    """GPUs put into an occupied place, and GPUs in two places: lives within the lives of others."""
    chosen = random.sample([life for life in lives if life.insert is not None], DOUBLE_OCCUPANCIES + DOUBLE_PLACES)
    for life in chosen[:DOUBLE_OCCUPANCIES]:
        began = _within(random, life)
        yield Life(next(serials), life.location, began, began + _OVERLAP, False, "")
    for life in chosen[DOUBLE_OCCUPANCIES:]:
        began = _within(random, life)
        yield Life(life.serial, "c24-7c2s7n3", began, began + _OVERLAP, False, "")


def _within(random: Random, life: Life) -> datetime:
    """A moment in the life, well before its end."""
    assert life.insert is not None, "only what began has a middle"
    seconds = round((life.remove - life.insert - 2 * _OVERLAP).total_seconds())
    return life.insert + timedelta(seconds=random.randrange(3_600, seconds))
