"""Who holds what of a node's shared devices: the one rule, over the latest fact of each kind about a pod. Pure.

A pod holds devices from their reservation on, until they are released or the pod is gone. The annotation of a pod that
is bound is what runs: it counts over the reservation, and without one. A fact of before an end does not count.
"""

from datetime import datetime

from gpuledger.domain.sharing.rows import NO_ALLOCATION, PodState, SharedPod
from gpuledger.domain.sharing.texts import is_same_allocation
from gpuledger.events.position import Offset, is_after


def is_later(at: datetime | None, position: Offset, than: datetime | None, than_position: Offset) -> bool:
    """Whether something happened, and after something else, or in one moment and is recorded after it."""
    if at is None or than is None:
        return at is not None
    return at > than or (at == than and is_after(position, than_position))


def settled(row: SharedPod) -> SharedPod:
    """The row with what follows from its facts."""
    observes = is_later(row.observed_at, row.observed_position, row.gone_at, row.gone_position)
    reserves = is_later(row.reserved_at, row.reserved_position, row.gone_at, row.gone_position) and is_later(
        row.reserved_at, row.reserved_position, row.released_at, row.released_position
    )
    bound_to = row.observed_node if observes else None
    annotation = row.annotation if bound_to is not None else NO_ALLOCATION
    if annotation != NO_ALLOCATION:
        node, allocation = bound_to, annotation
    elif reserves:
        node, allocation = row.reserved_node, row.reservation
    else:
        node, allocation = bound_to, NO_ALLOCATION
    is_over = not (observes or reserves)
    return row._replace(
        state=_state(row, is_over=is_over, is_on_node=bound_to is not None, reserves=reserves).value,
        node=node,
        allocation=allocation,
        differs=reserves and bound_to is not None and _differs(row, bound_to, annotation),
        over_at=row.gone_at if is_over else None,
    )


def _state(row: SharedPod, *, is_over: bool, is_on_node: bool, reserves: bool) -> PodState:
    if is_over:
        return PodState.WAITING if row.gone_at is None else PodState.GONE
    if is_on_node:
        return PodState.RUNNING if row.started else PodState.BOUND
    if reserves:
        is_bound = is_later(row.bound_at, row.bound_position, row.reserved_at, row.reserved_position)
        return PodState.BOUND if is_bound else PodState.RESERVED
    return PodState.WAITING


def _differs(row: SharedPod, bound_to: str, annotation: str) -> bool:
    """Whether what runs on a node is not what was reserved: other devices, another node, or no annotation."""
    return bound_to != row.reserved_node or not is_same_allocation(annotation, row.reservation)
