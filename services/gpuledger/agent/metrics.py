"""The agent's Prometheus metrics, computed from its parts at each scrape."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gpuledger.agent.board import Board
from gpuledger.agent.gateway.service import ReportCounts
from gpuledger.agent.held_units import CLAIM_LABELS, HOLDER_LABELS, held_claim_devices, held_units
from gpuledger.agent.outbox.store import OutboxStatus
from gpuledger.agent.plugin.device_list import device_lists
from gpuledger.agent.plugin.service import PluginCounts
from gpuledger.runtime.node_process import RegisteredCollector

Samples = Iterable[tuple[tuple[str, ...], float]]


class MeasuredOutbox(Protocol):
    """The figures of the outbox."""

    recorded: int

    @property
    def status(self) -> OutboxStatus:
        """See `gpuledger.agent.outbox.outbox.Outbox.status`."""
        ...

    @property
    def oldest_age_s(self) -> float:
        """See `gpuledger.agent.outbox.outbox.Outbox.oldest_age_s`."""
        ...


class _Family(NamedTuple):
    """A metric with its samples; `name` without its prefix."""

    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    name: str
    text: str
    labels: tuple[str, ...]
    samples: Samples


class AgentMetrics(RegisteredCollector):
    """`gpuledger_agent_*`, from the board, the outbox, the device plugin and the health gateway."""

    def __init__(self, board: Board, outbox: MeasuredOutbox, plugin: PluginCounts, reports: ReportCounts) -> None:
        self._board = board
        self._outbox = outbox
        self._plugin = plugin
        self._reports = reports

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        for family in (*self._of_cards(), *self._of_outbox(), *self._of_plugin(), self._of_reports()):
            metric = family.kind(f"gpuledger_agent_{family.name}", family.text, labels=family.labels)
            for labels, value in family.samples:
                metric.add_metric(labels, value)
            yield metric

    def _of_cards(self) -> Iterator[_Family]:
        survey, unfit = self._board.state.survey, self._board.state.unfit or {}
        if survey is not None:
            yield _gauge("cards", "Cards that the agent sees.", len(survey.cards))
            missing = survey.driver_missing and bool(survey.cards)
            yield _gauge("driver_missing", "1 while no driver answers for the cards of the node.", missing)
        faults = [((address, kind), 1.0) for address, kind in sorted(unfit.items())]
        yield _Family(GaugeMetricFamily, "card_unfit", "1 while a card cannot be used.", ("address", "kind"), faults)
        silent = [((address, why.reason), 1.0) for address, why in sorted(self._board.state.unregistered.items())]
        text = "1 while the driver does not report a card's errors (XIDs) to the agent."
        yield _Family(GaugeMetricFamily, "card_events_unregistered", text, ("address", "reason"), silent)
        unread = [((address, one.reading), 1.0) for address, ones in self._board.state.unread.items() for one in ones]
        text = "1 while the driver fails to give a reading of a card's health."
        yield _Family(GaugeMetricFamily, "card_reading_failed", text, ("address", "reading"), unread)

    def _of_outbox(self) -> Iterator[_Family]:
        outbox, status = self._outbox, self._outbox.status
        yield _counter("events_recorded", "Events that the ledger acknowledged.", outbox.recorded)
        yield _counter("events_dropped", "Events that were dropped.", status.dropped)
        yield _gauge("events_waiting", "Events that the ledger has not acknowledged.", status.waiting)
        yield _gauge("events_waiting_seconds", "Age of the oldest waiting event.", outbox.oldest_age_s)
        yield _gauge("durable", "1 while waiting events are on disk.", status.durable)

    def _of_plugin(self) -> Iterator[_Family]:
        counts = self._plugin
        units = Tally(
            (resource, "Healthy" if one.healthy else "Unhealthy")
            for resource, listed in device_lists(self._board.state).items()
            for one in listed
        )
        samples = [(labels, float(count)) for labels, count in sorted(units.items())]
        yield _Family(GaugeMetricFamily, "units", "Units offered to the kubelet.", ("resource", "health"), samples)
        held = [(holder, float(count)) for holder, count in sorted(held_units(self._board.state).items())]
        yield _Family(GaugeMetricFamily, "held_units", "Units of a card that a container holds.", HOLDER_LABELS, held)
        claimed = [(holder, 1.0) for holder in held_claim_devices(self._board.state)]
        text = "1 for a device that a container holds by a ResourceClaim."
        yield _Family(GaugeMetricFamily, "held_claim_devices", text, CLAIM_LABELS, claimed)
        yield _counter("registrations", "Registrations of resources with the kubelet.", counts.registrations)
        yield _counter("allocations", "Containers that were allocated units.", counts.allocations)
        yield _counter("lists_sent", "Lists of units sent to the kubelet.", counts.lists_sent)
        yield _counter("plugin_errors", "Failures of the device plugin.", counts.errors)

    def _of_reports(self) -> _Family:
        samples = [((result,), float(count)) for result, count in self._reports.by_result.items()]
        text = "Reports of health monitors, by what became of them."
        return _Family(CounterMetricFamily, "health_reports", text, ("result",), samples)


def _gauge(name: str, text: str, value: float) -> _Family:
    return _Family(GaugeMetricFamily, name, text, (), [((), float(value))])


def _counter(name: str, text: str, value: float) -> _Family:
    return _Family(CounterMetricFamily, name, text, (), [((), float(value))])
