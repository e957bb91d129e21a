"""Which events a projection hears: the handler of each type, and the types that it passes by. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from gpuledger.domain.fact import Fact, Handler
from gpuledger.domain.sources.deduplication import Seen
from gpuledger.events.device import DeviceReportAccepted
from gpuledger.events.errors import EventError
from gpuledger.events.registry import Registry
from gpuledger.ledger.api import Message
from gpuledger.projection.checker import Checked
from gpuledger.projection.definition import Projection
from gpuledger.projection.enforced import InForce
from gpuledger.projection.log_numbers import LogNumbers
from gpuledger.projection.route import Route

REPORT_ACCEPTED: Final = DeviceReportAccepted.TYPE


def is_ordinary(checked: Checked, numbers: LogNumbers | Seen, agreed: InForce | None) -> bool:
    """Whether an event counts and enforces nothing by what others have found, where the rules `agreed` are enforced."""
    return bool(checked.ordinary_type) and checked.counted_by is numbers and checked.checked_by is agreed


def reading(batch: Iterable[Checked], heard: Sequence[Checked], read: Callable[[Checked], None]) -> Iterator[Checked]:
    """The messages that are heard; each of the batch is read before any behind it is folded."""
    at, following = 0, [*heard, None]
    for checked in batch:
        read(checked)
        if checked is following[at]:
            yield checked
            at += 1


class Hearing:
    """The handlers of a projection, by type whatever its version.

    `passed_by` are types that were met, and of which a counted event changes nothing but the projection's position:
    nothing handles or observes them. It spares most folds most of the log.
    """

    def __init__(self, projection: Projection) -> None:
        self.passed_by: set[str] = set()
        self._source = projection.source
        self._by_name = {(model.AGGREGATE, model.EVENT): handler for model, handler in projection.handlers.items()}
        self._by_type: dict[str, Handler | None] = {}
        self._observes, self._observed_types = projection.observes, projection.observed_types

    def handler(self, event_type: str, route: Route) -> Handler | None:
        """The handler of a type, if it has one."""
        if event_type in self._by_type:
            return self._by_type[event_type]
        if not route.is_registered:  # A hostile source invents any number of types.
            return None
        handler = self._by_type[event_type] = self._by_name.get((route.aggregate, route.event))
        if handler is None and not self.observes(event_type) and event_type != REPORT_ACCEPTED:
            self.passed_by.add(event_type)
        return handler

    def passes(self, checked: Checked, agreed: InForce | None) -> bool:
        """Whether a message passes by, if its number is new, where the rules `agreed` are enforced."""
        return (
            checked.ordinary_type in self.passed_by and checked.checked_by is agreed and checked.source != self._source
        )

    def heard(
        self, batch: Sequence[Checked], numbers: LogNumbers | Seen, agreed: InForce | None
    ) -> list[Checked] | None:
        """The messages that do not pass by; None where each of them has to be looked at in its turn.

        That is so unless all were checked by the rules `agreed`. Whoever adds a rule has other rules for good, so none
        was checked by others than the first and the last.
        """
        if not batch or not batch[0].checked_by is batch[-1].checked_by is agreed:
            return None
        if batch[-1].counted_by is not numbers:
            for one in batch:
                one.counts(numbers)
        passed_by, own = self.passed_by, self._source
        return [
            one
            for one in batch
            if one.ordinary_type not in passed_by or one.counted_by is not numbers or one.source == own
        ]

    def observes(self, event_type: str) -> bool:
        """Whether the projection observes events of a type."""
        return self._observes and (not self._observed_types or event_type in self._observed_types)

    def facts(self, batch: Iterable[Checked], catalogue: Registry) -> Iterator[tuple[Message, Fact]]:
        """The messages of a batch whose events count, decode, and are handled here, with the facts."""
        passed_by = self.passed_by
        for checked in batch:
            if checked.ordinary_type not in passed_by:
                fact = self.fact(checked, catalogue)
                if fact is not None:
                    yield checked.message, fact

    def fact(self, checked: Checked, catalogue: Registry) -> Fact | None:
        """The fact of an event that counts, decodes, and is handled here."""
        event, route = checked.event, checked.route
        if event is None or route is None or self.handler(event.type, route) is None:
            return None
        try:
            return checked.fact(catalogue)
        except EventError:
            return None
