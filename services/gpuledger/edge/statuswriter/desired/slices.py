"""Desired ResourceSliceStatuses: the availability of each slice's devices. Pure.

Only the present is kept here.
"""

from typing import Any, Final, TypeVar

from gpuledger.api.kinds import RESOURCE_SLICES
from gpuledger.domain.dra import rows
from gpuledger.domain.dra.state import Availability
from gpuledger.domain.table import Table, TableSpec
from gpuledger.edge.statuswriter.fields import canonical
from gpuledger.edge.statuswriter.objects import DesiredObject, Document

ERRORS_SHOWN_MAX: Final = 255
"""How many validation errors a status lists; where there are more, another entry says how many."""

ERROR_LENGTH_MAX: Final = 2_048
MESSAGE_LENGTH_MAX: Final = 32_768


R = TypeVar("R", bound=tuple[Any, ...])


class PresentTable(Table[R]):
    """A table whose rows leave as soon as they have ended; nobody writes it."""

    def __init__(self, spec: TableSpec[R], *indexed: str) -> None:
        super().__init__(spec, *indexed)
        self.never_written()

    def put(self, row: R) -> None:
        """Insert or replace a row, or drop it because it has ended."""
        if self.spec.retires and self._has_retired(row):
            self.delete(self.key_of(row))
        else:
            super().put(row)


class PresentAvailability(Availability):
    """The present availability, without its past."""

    def __init__(self) -> None:
        super().__init__()
        self.allocation = PresentTable(rows.ALLOCATION, "pool", "claim")
        self.availability = self.history.availability = PresentTable(rows.AVAILABILITY, "pool")
        for table in self.tables().values():
            table.never_written()


def desired_slice(state: Availability, name: str, *, redacted: bool) -> DesiredObject | None:
    """How the object of a slice should be; None where there is no such slice."""
    row, status = state.slice.get(name), state.status(name, redacted=redacted)
    if row is None or status is None:
        return None
    spec = {"sliceName": name, "sliceUID": row.uid, "driver": row.driver, "pool": row.pool}
    owner = {"apiVersion": RESOURCE_SLICES.api_version, "kind": RESOURCE_SLICES.kind, "name": name, "uid": row.uid}
    if row.node:
        spec["nodeName"] = row.node
    return DesiredObject({"spec": spec, "ownerReferences": [owner]}, canonical(bounded(status)), row.uid)


def bounded(status: Document) -> Document:
    """A status within the bounds of the CRD, however much is wrong with its pool."""
    pool = status.get("poolStatus")
    if not pool:
        return status
    conditions = [one | {"message": one["message"][:MESSAGE_LENGTH_MAX]} for one in pool["conditions"]]
    bounds: Document = {"conditions": conditions}
    if errors := pool.get("validationErrors"):
        bounds["validationErrors"] = _first(errors)
    return status | {"poolStatus": pool | bounds}


def _first(errors: list[str]) -> list[str]:
    shown = [error[:ERROR_LENGTH_MAX] for error in errors[:ERRORS_SHOWN_MAX]]
    left_out = len(errors) - len(shown)
    return [*shown, f"{left_out} more are not shown"] if left_out else shown
