"""What the status writer does now and then beside its objects has in common: where it reads, asks and announces."""

from collections.abc import Callable
from typing import NamedTuple

from gpuledger.edge.kube.circuit_breaker import CircuitBreaker
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.events.series import Occurrence
from gpuledger.edge.statuswriter.settings import WriteContext


class PeriodicContext(NamedTuple):
    """The state that is read, the breaker that requests pass, and `announce`, which takes what is worth an Event."""

    write: WriteContext
    state: DesiredState
    breaker: CircuitBreaker
    announce: Callable[[Occurrence], None]


class Periodic:
    """Looks at the cluster now and then."""

    def __init__(self, context: PeriodicContext) -> None:
        self._context, self._state, self._breaker, self._announce = context
