"""ResourceSliceStatuses: the availability of slices, folded into what the API server has to show. Pure.

Only the present is kept here: rows of the past leave memory once somebody says so.
"""

from typing import Final

from gpuledger.api.kinds import RESOURCE_SLICES
from gpuledger.domain.dra.fold import Availability
from gpuledger.edge.statuswriter.reconcile.decide import Desired, Document, canonical

ERRORS_SHOWN_MAX: Final = 255
"""How many validation errors a status tells; where there are more, one more entry says how many."""

ERROR_LENGTH_MAX: Final = 2_048
MESSAGE_LENGTH_MAX: Final = 32_768


class Present(Availability):
    """How everything stands now, without its past."""

    def __init__(self) -> None:
        super().__init__()
        for table in self.tables().values():
            if table.spec.retires is None:
                table.never_written()

    def forget_past(self) -> None:
        """Let go of what has ended."""
        self.allocation.take_changes()
        self.availability.take_changes()


def desired_slice(state: Availability, name: str, *, redacted: bool) -> Desired | None:
    """How the object of a slice has to be; None where there is no such slice."""
    row, status = state.slice.get(name), state.status(name, redacted=redacted)
    if row is None or status is None:
        return None
    spec = {"sliceName": name, "sliceUID": row.uid, "driver": row.driver, "pool": row.pool}
    owner = {"apiVersion": RESOURCE_SLICES.api_version, "kind": RESOURCE_SLICES.kind, "name": name, "uid": row.uid}
    if row.node:
        spec["nodeName"] = row.node
    return Desired({"spec": spec, "ownerReferences": [owner]}, canonical(bounded(status)), row.uid)


def bounded(status: Document) -> Document:
    """A status that the CRD takes, however much is wrong with its pool."""
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
