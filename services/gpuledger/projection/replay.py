"""Folds of the log from its start, in memory: the past as it was known, which touches nothing.

An operator may decide to pass over a position, which is an event of the log like any other. Those positions are read
before a fold begins, because a projection that has stopped at one cannot read beyond it.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from gpuledger.domain.fact import State, time_of_ns
from gpuledger.events.envelope import decode, parse
from gpuledger.events.errors import EventError
from gpuledger.events.position import ORIGIN, Offset, Position, back, events_up_to, halfway, is_after, is_origin
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.ledger.api import Ledger, Message
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from gpuledger.projection.log_numbers import LogNumbers
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.garbage import seldom_collected

SKIPS: Final = "ledger.svc.operators.source.*.position-skipped"

OnProgress = Callable[[int, int], None]
"""Receives how many positions are done, and of how many."""


async def new_fold(projection: Projection, ledger: Ledger, state: State | None = None) -> Fold:
    """A fold at the start of the log that passes over the skipped positions."""
    fold = Fold(projection, ledger.generations, state=state, skipped=await skipped_positions(ledger))
    fold.begin(ledger.identity)
    return fold


async def fold_until(
    projection: Projection, ledger: Ledger, until: Offset | None = None, on_progress: OnProgress | None = None
) -> Fold:
    """The projection's state after the log's messages up to `until` (default: all there are now)."""
    fold = await memory_fold(projection, ledger)
    await fold_on(fold, ledger, await ledger.head() if until is None else until, on_progress)
    return fold


async def memory_fold(projection: Projection, ledger: Ledger, numbers: LogNumbers | None = None) -> Fold:
    """A fold at the start of the log whose rows and decisions nobody writes or publishes; see `Fold` on `numbers`."""
    skipped = await skipped_positions(ledger)
    fold = Fold(projection, ledger.generations, numbers=numbers, skipped=skipped, publishes=False)
    for table in fold.state.tables().values():
        table.never_written()
    fold.begin(ledger.identity)
    return fold


async def fold_on(fold: Fold, ledger: Ledger, until: Offset, on_progress: OnProgress | None = None) -> None:
    """Fold the log's messages behind a fold's position, up to `until`."""
    with seldom_collected():
        async for messages in ledger.history(after=fold.sequence, until=until):
            fold.apply_all(messages)
            if on_progress:
                on_progress(events_up_to(fold.sequence), events_up_to(until))


async def skipped_positions(ledger: Ledger) -> list[Position]:
    """Every position that operators decided to pass over. A generation begins with what the one before it had."""
    skipped = []
    async for messages in ledger.history(after=ledger.identity.behind, subject_filter=SKIPS):
        for message in messages:
            try:
                data = decode(message.data).data
            except EventError:
                continue
            if isinstance(data, SourcePositionSkipped):
                skipped.append(Position(data.generation, data.sequence))
    return skipped


async def sequence_at(ledger: Ledger, time: datetime) -> Offset:
    """The last sequence that was recorded at or before a time, the origin for none.

    The search bisects the log by the server's time-stamps, which do not decrease along it. Before the first of them the
    events count that the generation began with and that were first recorded elsewhere, as after a restore.
    """
    low, high = ORIGIN, await ledger.head()
    while is_after(high, low):
        middle = halfway(low, high)
        if time_of_ns((await _message(ledger, middle)).recorded_ns) <= time:
            low = middle
        else:
            high = back(middle, 1)
    return await _restored_at(ledger, time) if is_origin(low) else low


async def recorded_at(ledger: Ledger, sequence: Offset) -> datetime:
    """When an event was recorded in this log; before the first one, when that was, or now where there is none."""
    if is_origin(sequence):
        async for messages in ledger.history():
            return time_of_ns(messages[0].recorded_ns)
        return system_clock()
    return time_of_ns((await _message(ledger, sequence)).recorded_ns)


async def _restored_at(ledger: Ledger, time: datetime) -> Offset:
    """The last sequence of the restored events at the log's beginning that was first recorded at or before a time.

    Whoever publishes an event may write any `recordedtime` into it. It counts only here, where every event has one, and
    ends the search only where it is later: an event that claims an earlier one counts with those before it.
    """
    last = ORIGIN
    async for messages in ledger.history():
        for message in messages:
            try:
                recorded_at = parse(message.data).recorded_at
            except EventError:  # A restore leaves it as it was.
                continue
            if recorded_at is None or recorded_at > time:
                return last
            last = message.sequence
    return last


async def _message(ledger: Ledger, sequence: Offset) -> Message:
    async for messages in ledger.history(after=back(sequence, 1), until=sequence):
        return messages[0]
    raise AssertionError(f"the log has no message {sequence}, which lies before its head")
