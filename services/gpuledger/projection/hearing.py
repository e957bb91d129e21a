"""Which events a projection hears: the handler of each type, and the types that it passes by. Pure."""

from typing import Final

from gpuledger.domain.fact import Fact, Handler
from gpuledger.events.device import DeviceReportAccepted
from gpuledger.events.errors import EventError
from gpuledger.events.registry import Registry
from gpuledger.projection.checker import Checked
from gpuledger.projection.definition import Projection
from gpuledger.projection.route import Route

REPORT_ACCEPTED: Final = DeviceReportAccepted.TYPE


class Hearing:
    """The handlers of a projection, by type whatever its version.

    `passed_by` are types that were met, and of which a counted event changes nothing but the projection's position:
    nothing handles them, and it neither observes nor reads all events. It spares most folds most of the log.
    """

    def __init__(self, projection: Projection) -> None:
        self.passed_by: set[str] = set()
        self._by_name = {(model.AGGREGATE, model.EVENT): handler for model, handler in projection.handlers.items()}
        self._by_type: dict[str, Handler | None] = {}
        self._passes_by = not (projection.observes or projection.reads)

    def handler(self, event_type: str, route: Route) -> Handler | None:
        """The handler of a type, if it has one."""
        if event_type in self._by_type:
            return self._by_type[event_type]
        if not route.is_registered:  # A hostile source invents any number of types.
            return None
        handler = self._by_type[event_type] = self._by_name.get((route.aggregate, route.event))
        if handler is None and self._passes_by and event_type != REPORT_ACCEPTED:
            self.passed_by.add(event_type)
        return handler

    def fact(self, checked: Checked, catalogue: Registry) -> Fact | None:
        """The fact of an event that counts, decodes, and is handled here."""
        event, route = checked.event, checked.route
        if event is None or route is None or self.handler(event.type, route) is None:
            return None
        try:
            return checked.fact(catalogue)
        except EventError:
            return None
