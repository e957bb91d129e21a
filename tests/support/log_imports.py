"""Exported logs, and importing them as `gpuledger log import` does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuledger.events.envelope import Decoded
from gpuledger.events.position import Offset, Position
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.runtime.settings import Servers
from gpuledger.tools.log_archive import Header, opened, read_header, write_log
from gpuledger.tools.log_restore import Restored, restore_log, skip_positions
from gpuledger.tools.reporting import SILENT, Advance, NoProgress, Reporter, Silent
from support.ledgers import everything, new_ledger
from support.projections import publish
from support.runners import failures

NODES = 7
"""Whose events are in all of four partitions, and take turns."""


class Watched(Silent):
    """Calls a hook with the number of events restored so far, whenever that changes."""

    def __init__(self, hook: Callable[[int], None]) -> None:
        self._hook = hook

    @contextmanager
    def progress(self, description: str, total: int | None = None, *, unit: str = "") -> Iterator[Advance]:
        class Counted(NoProgress):
            def __init__(self, hook: Callable[[int], None]) -> None:
                self._hook, self._done = hook, 0

            def __call__(self, steps: int = 1) -> None:
                self._done += steps
                self._hook(self._done)

        yield Counted(self._hook if unit == "events" else lambda _done: None)


def of_nodes(count: int) -> list[Decoded]:
    """Failures of several nodes' devices, one node after the other."""
    turns = range(1, count // NODES + 2)
    events = [failures(range(turn, turn + 1), f"/nodes/n{node}/agent") for turn in turns for node in range(NODES)]
    return [one for (one,) in events][:count]


async def export(ledger: Ledger, path: Path) -> Header:
    with opened(path, "wb") as file:
        await write_log(ledger, file, "2026-01-01T00:00:00Z", SILENT)
    return read_header(path)


async def exported(servers: Servers, path: Path, events: int, partitions: int) -> Path:
    """An export of a ledger that is made for it and is still there; its last event skips a position."""
    async with new_ledger(servers.nats_url, partitions) as ledger:
        await publish(ledger, of_nodes(events - 1))
        await skip_positions(ledger, [(Position(1, 3), "a test")])
        await export(ledger, path)
    return path


async def bring_back(servers: Servers, path: Path, reporter: Reporter = SILENT) -> Restored:
    return await restore_log(servers, reporter, path, read_header(path), lambda _question: None)


async def recorded(servers: Servers, generation: int | None = None) -> list[tuple[str, Offset]]:
    """Subject and position of everything in the current generation, or in another one."""
    async with connect_ledger(servers.nats_url, name="test", generation=generation) as ledger:
        return [(message.subject, message.sequence) for message in await everything(ledger)]
