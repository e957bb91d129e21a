"""Dynamic resource allocation for tests: facts of slices, claims, rules and nodes, folded by the real fold."""

from collections.abc import Iterable
from typing import Any

from gpuledger.domain.dra.fold import HANDLERS
from gpuledger.domain.dra.state import Availability
from gpuledger.domain.fact import Fact
from gpuledger.domain.table import Table
from gpuledger.events.claim import ClaimAllocated, ClaimReleased, Result
from gpuledger.events.node import NodeUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.reach import NodeReach, NodeRequirement
from gpuledger.events.slice import (
    CounterSet,
    DeviceCapacity,
    RequestPolicy,
    SliceDevice,
    SlicePublished,
    SliceWithdrawn,
    Taint,
    TaintRuleLifted,
)
from support.events import event

DRIVER = "gpu.example.com"
ANYWHERE = NodeReach(all_nodes=True)

GONE = (SliceWithdrawn, ClaimReleased, TaintRuleLifted, NodeUnlabelled)
"""The facts that end an object."""

Document = dict[str, Any]


def on(node: str) -> NodeReach:
    """The reach of a node's own slices."""
    return NodeReach(node=node)


def labelled(key: str, value: str) -> NodeReach:
    """The nodes with a label."""
    return NodeReach(terms=((NodeRequirement(key=key, operator="In", values=(value,)),),))


def device(name: str, **fields: Any) -> SliceDevice:
    """A device that one claim can have."""
    return SliceDevice(name=name, **fields)


def shared(name: str, policy: RequestPolicy | None = None, **capacity: str) -> SliceDevice:
    """A device that several claims can share."""
    amounts = {key: DeviceCapacity(value=value, policy=policy) for key, value in capacity.items()}
    return SliceDevice(name=name, shareable=True, capacity=amounts)


def partition(name: str, of: str = "gpu-0", **counters: str) -> SliceDevice:
    """A device that draws from a set of counters."""
    return SliceDevice(name=name, consumes={of: counters})


def counters(name: str = "gpu-0", **amounts: str) -> CounterSet:
    """A set of counters."""
    return CounterSet(name=name, counters=amounts)


def taint(effect: str = "NoSchedule", key: str = "broken") -> Taint:
    """A taint."""
    return Taint(key=key, effect=effect)


def published(
    *devices: SliceDevice,
    pool: str = "n1",
    reach: NodeReach | None = None,
    pool_generation: int = 1,
    count: int = 1,
    **fields: Any,
) -> SlicePublished:
    """A slice of a pool; unless given otherwise it is the only one, of the node `n1`."""
    return SlicePublished(
        **_with_defaults(fields, uid="u", driver=DRIVER, generation=1),
        pool=pool,
        pool_generation=pool_generation,
        slice_count=count,
        reach=on(pool) if reach is None else reach,
        devices=devices,
    )


def result(name: str, pool: str = "n1", **fields: Any) -> Result:
    """A device of a pool."""
    return Result(**_with_defaults(fields, request="r", driver=DRIVER), pool=pool, device=name)


def _with_defaults(fields: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    return defaults | fields


def share(name: str, share: str = "s", pool: str = "n1", **consumed: str) -> Result:
    """A share of a device of a pool."""
    return result(name, pool, share=share, consumed=consumed)


def given(*results: Result, uid: str = "uid-1") -> ClaimAllocated:
    """A claim that holds this."""
    return ClaimAllocated(uid=uid, results=results)


class RecordedSlices:
    """A fold with recorded facts; each is an hour after the one before where no hour is given."""

    def __init__(self, *facts: tuple[str, Payload]) -> None:
        self.state = Availability()
        self.state.take_touched()
        self.hour: float = 0
        self.record(*facts)

    def record(self, *facts: tuple[str, Payload], at: float | None = None) -> "RecordedSlices":
        """Record facts: a subject and what happened to it."""
        for subject, data in facts:
            self.hour = self.hour + 1 if at is None else at
            HANDLERS[type(data)](self.state, Fact(event(data, subject, at=self.hour), 1, 0), data)
        return self

    def status(self, name: str, *, redacted: bool = False) -> Document:
        """The status of a slice, without the times of its conditions."""
        found = self.state.status(name, redacted=redacted)
        assert found is not None, name
        return without_times(found)

    def statuses(self) -> dict[str, Document]:
        """The status of every slice, without the times of their conditions."""
        return {name: self.status(name) for name in sorted(self.state.slice.rows)}

    def states(self, name: str = "s1") -> dict[str, str]:
        """The devices of a slice: the state, and the reason where there is one."""
        devices = self.status(name)["devices"]
        return {one["name"]: "/".join(filter(None, (one["state"], one.get("stateReason")))) for one in devices}


def without_times(status: Document) -> Document:
    """A status without the times of its conditions, and without their generation, which is that of the status."""
    for condition in status.get("poolStatus", {}).get("conditions", ()):
        del condition["lastTransitionTime"]
        assert condition.pop("observedGeneration") == status["observedGeneration"]
    return status


def reloaded(recorded: RecordedSlices) -> RecordedSlices:
    """The same after a restart: loaded from what the tables hold, without what had retired."""
    again = RecordedSlices()
    again.hour = recorded.hour
    for name, table in again.state.tables().items():
        table.load(live(recorded.state.tables()[name]))
    return again


def live(table: Table[Any]) -> list[Any]:
    """The rows that have not retired."""
    retires = table.spec.retires
    return [
        row for row in table.rows.values() if retires is None or any(getattr(row, column) is None for column in retires)
    ]


def as_now(facts: Iterable[tuple[str, Payload]]) -> list[tuple[str, Payload]]:
    """Of each object the last word, without those that are gone."""
    last = {(data.AGGREGATE, name): (name, data) for name, data in facts}
    return [(name, data) for name, data in last.values() if not isinstance(data, GONE)]
