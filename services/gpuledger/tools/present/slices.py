"""Slices, claims and who holds what as Kubernetes has them now, as the state that a ledger's rows make. Pure."""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from gpuledger.domain.dra import rows
from gpuledger.domain.dra.fold import HANDLERS
from gpuledger.domain.dra.state import Availability
from gpuledger.domain.fact import Fact
from gpuledger.edge.kube.client import Object
from gpuledger.edge.kube.objects import mapping, time_of
from gpuledger.edge.watchers.decide import AnyKind
from gpuledger.edge.watchers.resources import claims, deviceclasses, nodes, slices, taintrules
from gpuledger.tools.present.objects import DatedPart, dated, fold

ALLOCATION: Final = ("f:status", "f:allocation")
"""Where the managed fields of a claim have its allocation."""


class PresentKind(NamedTuple):
    """A kind of object that the state follows from, the tables that it fills, and how its objects are read.

    Without the objects of a kind that `may_be_absent` an answer is still worth something, and says what it lacks.
    """

    kind: AnyKind
    tables: frozenset[str]
    read: Callable[[Object], DatedPart]
    may_be_absent: bool = True

    def is_needed(self, without: Collection[str]) -> bool:
        """Whether a caller needs one of the tables who does not need these."""
        return bool(self.tables.difference(without))


def read_slice(obj: Object) -> DatedPart:
    """A slice, since its spec was last written."""
    return dated(slices.KIND, obj, "f:spec")


def read_claim(obj: Object) -> DatedPart:
    """A claim, since it was allocated or created."""
    found = dated(claims.KIND, obj, *(ALLOCATION if mapping(obj, "status", "allocation") else ()))
    allocated_at = time_of(mapping(obj, "status", "allocation").get("allocationTimestamp"))
    return found if allocated_at is None else found._replace(time=allocated_at)


def _of(kind: AnyKind) -> Callable[[Object], DatedPart]:
    return lambda obj: dated(kind, obj)


KINDS: Final = (
    PresentKind(slices.KIND, frozenset({rows.SLICE.name}), read_slice, may_be_absent=False),
    PresentKind(claims.KIND, frozenset({rows.CLAIM.name, rows.ALLOCATION.name}), read_claim),
    PresentKind(deviceclasses.KIND, frozenset({rows.DEVICE_CLASS.name}), _of(deviceclasses.KIND), may_be_absent=False),
    PresentKind(taintrules.KIND, frozenset({rows.TAINT_RULE.name}), _of(taintrules.KIND)),
    PresentKind(nodes.LABELS_KIND, frozenset({rows.NODE_LABELS.name}), _of(nodes.LABELS_KIND)),
)


def availability_of(facts: Iterable[Fact]) -> Availability:
    """The state that the facts amount to; it must never be written."""
    state = Availability()
    for table in state.tables().values():
        table.never_written()
    fold(state, HANDLERS, facts)
    return state
