"""Facts of dynamic resource allocation for tests: slices, claims and what they hold, in hours after the start."""

from collections.abc import Iterable, Mapping, Sequence

from gpuledger.domain.dra.state import Availability
from gpuledger.events.claim import ClaimAllocated, ClaimReleased, ClaimRequested, Request, Result, Wish
from gpuledger.events.envelope import Decoded
from gpuledger.events.payload import Payload
from gpuledger.events.reach import NodeReach
from gpuledger.events.slice import DeviceCapacity, SliceDevice, SlicePublished, SliceWithdrawn, Taint
from gpuledger.readmodels.projections import AvailabilityProjection
from support.events import RecordedFact, folded, log_of, numbered

WATCHER = "/watchers/dra"
DRIVER = "gpu.example.com"
MEMORY = "memory"

TAINT = Taint(key="example.com/broken", effect="NoSchedule")

Held = tuple[str, str, str | None]
"""Pool, device, and the share or None."""


def fact_at(at: int, subject: str, data: Payload) -> RecordedFact:
    """A fact that the watcher recorded at an hour."""
    return RecordedFact(WATCHER, subject, at, data)


def device(name: str, *, memory: str | None = None, tainted: bool = False) -> SliceDevice:
    """A device; one with memory can be shared."""
    capacity = {} if memory is None else {MEMORY: DeviceCapacity(value=memory)}
    return SliceDevice(name=name, shareable=memory is not None, capacity=capacity, taints=(TAINT,) if tainted else ())


def published(
    pool: str,
    devices: Sequence[SliceDevice],
    *,
    node: str | None = None,
    driver: str = DRIVER,
    generation: int = 1,
    slices: int = 1,
) -> SlicePublished:
    """A slice of a node, or of the whole cluster."""
    reach = NodeReach(all_nodes=True) if node is None else NodeReach(node=node)
    return SlicePublished(
        uid="u", driver=driver, pool=pool, pool_generation=generation, slice_count=slices,
        reach=reach, devices=tuple(devices),
    )  # fmt: skip


def requested(owner: str | None = None) -> ClaimRequested:
    """A claim for one device."""
    return ClaimRequested(uid="u", owner=owner, requests=(_request(),))


def allocated(
    *held: Held,
    owner: str | None = None,
    driver: str = DRIVER,
    consumed: Mapping[str, str] | None = None,
    admin: bool = False,
) -> ClaimAllocated:
    """A claim that has these devices."""
    results = tuple(
        Result(
            request=f"r{number}", driver=driver, pool=pool, device=name, share=share, admin_access=admin,
            consumed=dict(consumed or {}) if share else {},
        )
        for number, (pool, name, share) in enumerate(held)
    )  # fmt: skip
    return ClaimAllocated(uid="u", owner=owner, requests=(_request(),), results=results)


def withdrawn() -> SliceWithdrawn:
    """The slice is gone."""
    return SliceWithdrawn(uid="u")


def released() -> ClaimReleased:
    """The claim is gone."""
    return ClaimReleased(uid="u")


def events_of(facts: Iterable[RecordedFact]) -> list[Decoded]:
    """The facts as a watcher records them."""
    return numbered(facts)


def availability_of(facts: Iterable[RecordedFact]) -> Availability:
    """What the facts fold to."""
    state = folded(AvailabilityProjection(), log_of(events_of(facts))).state
    assert isinstance(state, Availability)
    return state


def _request() -> Request:
    return Request(name="r0", wishes=(Wish(name="r0", device_class="gpu"),))
