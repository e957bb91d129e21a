"""What `make bench` says: one table and one JSON file, each figure beside its ceiling or peer of the same run."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path("bench-results.json")


@dataclass(frozen=True)
class Figure:
    """One row. `target` is a share of the peer's value where `is_ratio`, otherwise the most that is allowed."""

    name: str
    value: float
    unit: str
    peer: str
    peer_value: float
    target: float | None
    is_ratio: bool = True

    @property
    def ratio(self) -> float:
        """The figure as a multiple of its peer's."""
        return self.value / self.peer_value if self.peer_value else 0.0

    @property
    def verdict(self) -> str:
        """`ok`, `missed`, or `-` where nothing was promised."""
        if self.target is None:
            return "-"
        return "ok" if (self.ratio >= self.target if self.is_ratio else self.value <= self.target) else "missed"

    @property
    def promised(self) -> str:
        """The target in words."""
        if self.target is None:
            return "-"
        return f">= {self.target:g} x" if self.is_ratio else f"<= {self.target:g} {self.unit}"

    def to_json(self) -> dict[str, Any]:
        """The row as a document."""
        return {
            "figure": self.name,
            "value": self.value,
            "unit": self.unit,
            "peer": self.peer,
            "peer_value": self.peer_value,
            "ratio": self.ratio,
            "target": self.promised,
            "verdict": self.verdict,
        }


def show(figures: Sequence[Figure], partitions: int = 1) -> None:
    """Print the table; `partitions` is how many the ledgers of the run had."""
    ledgers = "" if partitions == 1 else f", on ledgers of {partitions} partitions"
    table = Table(title=f"gpuledger: figures of this run, each beside its ceiling or peer{ledgers}")
    for name, justify in _COLUMNS.items():
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for figure in figures:
        table.add_row(
            figure.name,
            f"{_number(figure.value)} {figure.unit}",
            figure.peer,
            f"{_number(figure.peer_value)} {figure.unit}",
            f"{figure.ratio:.2f}",
            figure.promised,
            figure.verdict,
        )
    Console(width=None if os.isatty(1) else 160).print(table)


def write(figures: Sequence[Figure], about: Mapping[str, Any]) -> None:
    """Write `bench-results.json` into the current folder."""
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    document = {"machine": machine, **about, "figures": [figure.to_json() for figure in figures]}
    RESULTS.write_text(json.dumps(document, indent=2, default=str) + "\n")


_COLUMNS = {
    "figure": "left",
    "measured": "right",
    "ceiling or peer": "left",
    "its value": "right",
    "ratio": "right",
    "target": "right",
    "verdict": "left",
}


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"
