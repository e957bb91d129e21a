"""Progress bars on a person's terminal. Whoever shows none need not import this, nor the library that draws them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from gpuledger.tools.reporting import Advance


@contextmanager
def bar(description: str, total: int | None, unit: str, err: TextIO) -> Iterator[Advance]:
    """A bar with rate and time left, gone when the block ends; without a total it only moves."""
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        _Count(unit),
        _Rate(unit),
        TimeRemainingColumn(compact=True),
        console=Console(file=err),
        redirect_stdout=False,
        transient=True,
    ) as bars:
        yield _Seen(bars, bars.add_task(description, total=total))


@dataclass(frozen=True, slots=True)
class _Seen:
    bars: Progress
    task: TaskID

    def __call__(self, steps: int = 1) -> None:
        self.bars.advance(self.task, steps)

    def to(self, done: int, total: int | None = None) -> None:
        self.bars.update(self.task, completed=done, total=total)


class _Count(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        total = "" if task.total is None else f"/{task.total:,.0f}"
        return Text(f"{task.completed:,.0f}{total} {self.unit}".rstrip())


class _Rate(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self.unit}".rstrip() + "/s")
