"""Coalesces reports by node, and returns once the ledger has them.

The rules are those of the agents' gateway (`gpuledger.healthreports.coalescing`). The ledger is the only store: what
replicas recorded lately is read back from it, so that a report that is sent again to another one, or after a crash, is
recognized. A count of repeats waits in memory until its window ends; the report itself is in the ledger before.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.publisher import ENVELOPE_BYTES, NodeReport, ReportPublisher
from gpuledger.events.envelope import Decoded
from gpuledger.events.health import NodeHealthReported
from gpuledger.healthreports.coalescing import (
    Coalesced,
    ReportResult,
    Windows,
    add_report,
    close_windows,
    flush,
    remember,
)
from gpuledger.healthreports.errors import NotDurableError, SpoolFullError
from gpuledger.healthreports.translate import HealthReport
from gpuledger.runtime.clock import Clock, Instant


class ReportOf(NamedTuple):
    """A report, and the node that it is about."""

    node: str
    report: HealthReport


class _Taken(NamedTuple):
    """What a request makes of the windows of the nodes that it is about, what to record, and what became of each."""

    windows: dict[str, Windows]
    events: list[NodeReport]
    results: list[ReportResult]


class GatewayRecorder:
    """The windows of every node that reports here."""

    def __init__(
        self, publisher: ReportPublisher, bounds: GatewayBounds, *, clock: Clock, monotonic: Callable[[], float]
    ) -> None:
        self._publisher = publisher
        self._bounds = bounds
        self._clock = clock
        self._monotonic = monotonic
        self._windows: OrderedDict[str, Windows] = OrderedDict()
        self._last: dict[str, asyncio.Future[bool]] = {}
        """By node, the newest event of it that waits for the ledger."""

    async def take(self, reports: Sequence[ReportOf]) -> list[ReportResult]:
        """Take the reports of a request, and return what became of each once the ledger has them.

        Raises:
            SpoolFullError: too much waits for the ledger; none was taken.
            NotDurableError: the ledger does not have them in time; to send them again later does no harm.
        """
        taken = self._stepped(reports)
        size = sum(len(one.data.model_dump_json().encode()) + ENVELOPE_BYTES for one in taken.events)
        if taken.events and not self._publisher.has_room(len(taken.events), size):
            raise SpoolFullError("Too many reports wait until the ledger takes them; send it again later.")
        added = self._apply(taken.windows, taken.events)
        await self._recorded([*added, *(self._last[one.node] for one in reports if one.node in self._last)])
        return taken.results

    def close_due(self) -> None:
        """Record what ended windows counted."""
        now = self._now()
        for node, windows in list(self._windows.items()):
            closed = close_windows(windows, now)
            if closed.windows is not windows:
                self._apply({node: closed.windows}, _events(node, closed))

    def flush(self) -> None:
        """Record all that was counted, without waiting for windows to end."""
        for node, windows in list(self._windows.items()):
            flushed = flush(windows)
            self._apply({node: flushed.windows}, _events(node, flushed))

    def recall(self, event: Decoded) -> None:
        """Recognize what another replica recorded, or this one before it was restarted, if it is sent again."""
        data = event.data
        if event.epoch == self._publisher.epoch or not isinstance(data, NodeHealthReported):
            return
        node = event.subject
        self._publisher.note(NodeReport(node, data, event.time), event.id)
        found = remember(self._windows.get(node, {}), data, event.time, self._now())
        self._apply({node: found.windows}, _events(node, found))

    def _stepped(self, reports: Sequence[ReportOf]) -> _Taken:
        now, taken = self._now(), _Taken({}, [], [])
        for node, report in reports:
            if node not in taken.windows:
                closed = close_windows(self._windows.get(node, {}), now)
                taken.windows[node] = closed.windows
                taken.events.extend(_events(node, closed))
            step = add_report(taken.windows[node], report, now)
            taken.windows[node] = step.windows
            taken.events.extend(_events(node, step))
            taken.results.append(step.result)
        return taken

    def _apply(self, windows: dict[str, Windows], events: Sequence[NodeReport]) -> list[asyncio.Future[bool]]:
        """Keep windows, and have events recorded; both in one go, so that no request sees one without the other."""
        added = []
        for event in events:
            recorded = self._last[event.node] = self._publisher.add(event)
            recorded.add_done_callback(partial(self._settled, event.node))
            added.append(recorded)
        for node, kept in windows.items():
            self._put(node, kept)
        return added

    def _settled(self, node: str, recorded: asyncio.Future[bool]) -> None:
        if self._last.get(node) is recorded:
            del self._last[node]
        if not recorded.cancelled() and not recorded.result():
            self._windows.pop(node, None)  # what the ledger refuses must not be recognized

    async def _recorded(self, waiting: Sequence[asyncio.Future[bool]]) -> None:
        """Return once the ledger has these, and so all that was taken of their nodes before, whoever sent it."""
        if not waiting:
            return
        done, late = await asyncio.wait(set(waiting), timeout=self._bounds.answer_timeout_s)
        if late:
            why = f" ({self._publisher.trouble})" if self._publisher.trouble else ""
            raise NotDurableError(
                f"The ledger did not take the report within {self._bounds.answer_timeout_s:g} s{why}; send it again."
            )
        if not all(one.result() for one in done):
            raise NotDurableError("The ledger refuses the report, and the gateway's log says why; send it again later.")

    def _put(self, node: str, windows: Windows) -> None:
        """Keep a node's windows; the node that reported longest ago makes room, and what it counted is recorded."""
        self._windows.pop(node, None)
        if not windows:
            return
        self._windows[node] = windows
        if len(self._windows) > self._bounds.nodes_max:
            left, its = self._windows.popitem(last=False)
            self._apply({}, _events(left, flush(its)))

    def _now(self) -> Instant:
        return Instant(self._monotonic(), self._clock())


def _events(node: str, coalesced: Coalesced) -> list[NodeReport]:
    return [NodeReport(node, data, at) for data, at in coalesced.events]
