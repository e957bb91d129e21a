"""What an agent says of itself to Prometheus, computed from its parts when somebody asks."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector

from gpuledger.agent.board import Board
from gpuledger.agent.plugin.device_list import device_lists

Samples = Iterable[tuple[tuple[str, ...], float]]


class Waiting(Protocol):
    """What of the outbox is measured."""

    recorded: int

    @property
    def waiting(self) -> int:
        """How many events the ledger has not acknowledged."""
        ...

    @property
    def dropped(self) -> int:
        """How many events were given up."""
        ...

    @property
    def durable(self) -> bool:
        """Whether what waits is on disk."""
        ...

    @property
    def oldest_age_s(self) -> float:
        """How long ago the first event that waits happened."""
        ...


class Counted(Protocol):
    """What of the device plugin is measured."""

    registrations: int
    allocations: int
    lists_sent: int
    errors: int


class _Family(NamedTuple):
    """A metric by name."""

    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    name: str
    text: str
    labels: tuple[str, ...]
    samples: Samples


class AgentMetrics(Collector):
    """`gpuledger_agent_*`, as the board, the outbox and the device plugin have them."""

    def __init__(self, board: Board, outbox: Waiting, plugin: Counted) -> None:
        self._board = board
        self._outbox = outbox
        self._plugin = plugin

    @contextmanager
    def registered(self) -> Iterator[None]:
        """Served for the length of the block."""
        REGISTRY.register(self)
        try:
            yield
        finally:
            REGISTRY.unregister(self)

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        for family in (*self._of_cards(), *self._of_outbox(), *self._of_plugin()):
            metric = family.kind(family.name, family.text, labels=family.labels)
            for labels, value in family.samples:
                metric.add_metric(labels, value)
            yield metric

    def _of_cards(self) -> Iterator[_Family]:
        survey, unfit = self._board.state.survey, self._board.state.unfit or {}
        if survey is not None:
            cards, missing = len(survey.cards), survey.driver_missing
            yield _gauge("cards", "Cards that the agent sees.", cards)
            yield _gauge("driver_missing", "1 while no driver answers.", missing)
        faults = [((address, kind), 1.0) for address, kind in sorted(unfit.items())]
        yield _Family(
            GaugeMetricFamily, _name("card_unfit"), "1 while a card cannot be used.", ("address", "kind"), faults
        )

    def _of_outbox(self) -> Iterator[_Family]:
        box = self._outbox
        yield _counter("events_recorded", "Events that the ledger acknowledged.", box.recorded)
        yield _counter("events_dropped", "Events that were given up.", box.dropped)
        yield _gauge("events_waiting", "Events that the ledger has not acknowledged.", box.waiting)
        yield _gauge("events_waiting_seconds", "How long ago the first event that waits happened.", box.oldest_age_s)
        yield _gauge("durable", "1 while what waits is on disk.", box.durable)

    def _of_plugin(self) -> Iterator[_Family]:
        counts = self._plugin
        units = Tally(
            (resource, "Healthy" if one.healthy else "Unhealthy")
            for resource, units in device_lists(self._board.state).items()
            for one in units
        )
        samples = [(labels, float(count)) for labels, count in sorted(units.items())]
        yield _Family(
            GaugeMetricFamily, _name("units"), "Units offered to the kubelet.", ("resource", "health"), samples
        )
        yield _counter("registrations", "Resources made known to the kubelet.", counts.registrations)
        yield _counter("allocations", "Containers that were given units.", counts.allocations)
        yield _counter("lists_sent", "Lists of units sent to the kubelet.", counts.lists_sent)
        yield _counter("plugin_errors", "Failures of the device plugin.", counts.errors)


def _name(name: str) -> str:
    return f"gpuledger_agent_{name}"


def _gauge(name: str, text: str, value: float) -> _Family:
    return _Family(GaugeMetricFamily, _name(name), text, (), [((), float(value))])


def _counter(name: str, text: str, value: float) -> _Family:
    return _Family(CounterMetricFamily, _name(name), text, (), [((), float(value))])
