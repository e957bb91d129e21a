"""Who holds which shared devices, and which reservations have no outcome yet, folded from the ledger. Pure.

Who holds what is decided in `domain.sharing`; this adds what the extender itself has begun and not ended.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.domain.fact import Fact, Handler, Handlers, TableState, counted_as_recorded
from gpuledger.domain.sharing.folds import HANDLERS
from gpuledger.domain.sharing.rows import SharedPod
from gpuledger.domain.sharing.state import SharingInMemory
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.sharing import PodDevicesBound, PodDevicesReleased, PodDevicesReserved, PodSharingGone
from gpuledger.projection.definition import Projection


class OpenReservation(NamedTuple):
    """A reservation without an outcome: the event of `pod.devices-reserved`, and when it was decided and recorded."""

    uid: str
    pod: str
    node: str
    event: str
    correlation: str
    reserved_at: datetime
    recorded_at: datetime
    imported: bool


OPEN_RESERVATION: Final = TableSpec("open_reservation", OpenReservation, ("uid",))


class ExtenderState(TableState):
    """The fold of who holds what, and the open reservations."""

    def __init__(self) -> None:
        self.sharing = SharingInMemory()
        self.open_reservation = Table(OPEN_RESERVATION)
        self.open_reservation.never_written()
        self._reserved: list[str] | None = None

    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table, by name."""
        return {**self.sharing.tables(), **super().tables()}

    def open(self, uid: str) -> OpenReservation | None:
        """The reservation of a pod that has no outcome yet."""
        return self.open_reservation.get(uid)

    def follow_reservations(self) -> None:
        """Begin to note reservations that are folded, for `take_reserved`."""
        self._reserved = []

    def take_reserved(self) -> list[str]:
        """The events of the reservations that were folded since the last call, those that are over by now as well."""
        taken, self._reserved = self._reserved or [], []
        return taken

    def note_reserved(self, event: str) -> None:
        """A reservation was folded."""
        if self._reserved is not None:
            self._reserved.append(event)

    def pod(self, uid: str) -> SharedPod | None:
        """A pod, as the ledger has it."""
        return self.sharing.shared_pod.get(uid)


def _reserved(state: ExtenderState, fact: Fact, data: PodDevicesReserved) -> None:
    event = fact.event
    state.note_reserved(event.id)
    state.open_reservation.put(
        OpenReservation(
            data.uid,
            event.subject,
            data.node,
            event.id,
            event.correlation_id or event.id,
            event.time,
            counted_as_recorded(event, fact.recorded_ns),
            event.imported,
        )
    )


def _ended(state: ExtenderState, _fact: Fact, data: PodDevicesBound | PodDevicesReleased | PodSharingGone) -> None:
    if data.uid is not None and state.open(data.uid) is not None:
        state.open_reservation.delete(data.uid)


_OWN: Final[Handlers] = {
    PodDevicesReserved: _reserved,
    PodDevicesBound: _ended,
    PodDevicesReleased: _ended,
    PodSharingGone: _ended,
}


def _both(shared: Handler, own: Handler | None) -> Handler:
    def handle(state: ExtenderState, fact: Fact, data: Any) -> None:  # noqa: ANN401 - each handler has its own payload
        shared(state.sharing, fact, data)
        if own is not None:
            own(state, fact, data)

    return handle


class ExtenderProjection(Projection):
    """Folds who holds what; its rows stay in memory, and in snapshots."""

    name = "extender"
    version = 1
    specs = ()
    handlers = {model: _both(shared, _OWN.get(model)) for model, shared in HANDLERS.items()}
    state_class = ExtenderState
