"""Titan's format computed directly, by another way than the product's: what every answer is compared with."""

import csv
import json
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

SECONDS_PER_YEAR = 365.25 * 86_400


class Life(NamedTuple):
    """One life; `end` is None while the device is still in service at the end of the data."""

    serial: str
    slot: str
    begin: datetime
    end: datetime | None


class TitanFile:
    """The rows of a file."""

    def __init__(self, path: Path) -> None:
        with path.open(newline="") as file:
            self.rows = list(csv.DictReader(file))
        self.data_end = max(_time(row["remove"]) for row in self.rows)
        self.lives = [self._life(row) for row in self.rows if row["insert"]]

    def devices(self) -> set[str]:
        return {row["SN"] for row in self.rows}

    def slots(self) -> set[str]:
        return {life.slot for life in self.lives}

    def gpu_years(self) -> float:
        spans = ((life.end or self.data_end) - life.begin for life in self.lives)
        return sum(span.total_seconds() for span in spans) / SECONDS_PER_YEAR

    def failures(self) -> dict[str, int]:
        return dict(Counter(row["event"] for row in self.rows if row["event"]))

    def installed(self, at: datetime) -> set[tuple[str, str]]:
        """Device and slot of everything installed: insert <= at < remove."""
        return {
            (life.serial, life.slot) for life in self.lives if life.begin <= at and (life.end is None or at < life.end)
        }

    def overlaps(self) -> list[str]:
        """The slot of every pair of lives of two devices that overlap there."""
        by_slot: dict[str, list[Life]] = defaultdict(list)
        for life in self.lives:
            by_slot[life.slot].append(life)
        return [
            slot
            for slot, lives in by_slot.items()
            for one, other in combinations(lives, 2)
            if one.serial != other.serial and self._overlap(one, other)
        ]

    def devices_in_two_places(self) -> set[str]:
        by_serial: dict[str, list[Life]] = defaultdict(list)
        for life in self.lives:
            by_serial[life.serial].append(life)
        return {
            serial
            for serial, lives in by_serial.items()
            for one, other in combinations(lives, 2)
            if one.slot != other.slot and self._overlap(one, other)
        }

    def moments(self) -> list[datetime]:
        """Every moment at which something changes."""
        times = {life.begin for life in self.lives} | {life.end for life in self.lives if life.end}
        return sorted(times)

    def facts(self) -> list[str]:
        """Every insertion, removal and failure as a line of JSON, as `import jsonl` takes it."""
        found = []
        for life in self.lives:
            found.append(_fact("device.inserted", life.serial, life.begin, {"slot": life.slot}))
            if life.end is not None:
                found.append(_fact("device.removed", life.serial, life.end, {"slot": life.slot}))
        failed = [row for row in self.rows if row["event"]]
        return found + [
            _fact("device.failed", row["SN"], _time(row["remove"]), {"kind": row["event"]}) for row in failed
        ]

    def _life(self, row: dict[str, str]) -> Life:
        end = _time(row["remove"])
        still = row["out"] == "FALSE" and end == self.data_end
        return Life(row["SN"], row["location"], _time(row["insert"]), None if still else end)

    def _overlap(self, one: Life, other: Life) -> bool:
        first, second = one.end or self.data_end, other.end or self.data_end
        return max(one.begin, other.begin) < min(first, second)


def _fact(event: str, subject: str, time: datetime, data: dict[str, str]) -> str:
    fact = {"type": f"io.gpuledger.{event}.v1", "subject": subject, "time": time.isoformat(), "data": data}
    return json.dumps(fact)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
