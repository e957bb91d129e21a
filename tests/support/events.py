"""Events for tests: builders for messages of the log, logs of them, and streams of facts for properties."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

from gpuledger.domain.fact import Fact
from gpuledger.domain.table import Table
from gpuledger.events.allocation import AllocatedClaim, AllocatedDevices, AllocationEnded, AllocationObserved
from gpuledger.events.catalogue import registry
from gpuledger.events.device import (
    DeviceDetached,
    DeviceErrorsObserved,
    DeviceFailed,
    DeviceHealthChanged,
    DeviceInserted,
    DeviceRemoved,
)
from gpuledger.events.envelope import Decoded, Event, encode, nats_subject_of
from gpuledger.events.health import HealthEntity, NodeHealthReported
from gpuledger.events.node import NodeDecommissioned, NodeRegistered
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.workload import DeviceShare, WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.projection.definition import Projection
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.fold import Fold

START = datetime(2026, 1, 1, tzinfo=UTC)
IMPORT, AGENT, SERVICE = "/import/titan", "/nodes/n1/agent", "/services/pools"
INVENTORY = "/services/inventory"
EPOCH = "e1"
GENERATION = 1


def hour(number: float) -> datetime:
    """A time some hours after the start of all tests."""
    return START + timedelta(hours=number)


def event(
    data: Payload,
    subject: str,
    *,
    number: int = 1,
    at: float = 0,
    source: str = IMPORT,
    epoch: str = EPOCH,
    event_id: str | None = None,
) -> Decoded:
    """An event; `at` is in hours after the start."""
    return Event(event_id or f"{source}#{epoch}#{number}", source, data.TYPE, subject, hour(at), data, epoch, number)


def outgoing(event: Decoded) -> Outgoing:
    """The event, ready to be published."""
    return Outgoing(nats_subject_of(event), event.id, encode(event))


def message(event: Decoded, sequence: int, *, subject: str | None = None, data: bytes | None = None) -> Message:
    """The event as the log has it at a sequence, recorded that many seconds after the start."""
    recorded = START + timedelta(seconds=sequence)
    return Message(
        nats_subject_of(event) if subject is None else subject,
        encode(event) if data is None else data,
        sequence,
        int(recorded.timestamp()) * 1_000_000_000,
    )


def log_of(events: Iterable[Decoded], first: int = 1) -> list[Message]:
    """A log that holds the events in this order."""
    return [message(event, sequence) for sequence, event in enumerate(events, first)]


def fact_of(fold: Fold, message: Message) -> Fact | None:
    """The fact that a message holds, where the fold's projection handles it; folds nothing."""
    return next((fact for _, fact in fold._hearing.facts(fold.check_all([message]), registry)), None)


def folded(projection: Projection, messages: Sequence[Message], *, types: Iterable[type[Payload]] = ()) -> Fold:
    """The projection's fold of a log; `types` are those introduced ones that are in force from its start."""
    enforced = EnforcedRules(EnforcedRule(model.TYPE, 1, ORIGIN) for model in types)
    fold = Fold(projection, GENERATION, enforced=enforced)
    fold.apply_all(messages)
    return fold


Rows = dict[str, dict[Any, tuple[Any, ...]]]


def rows_of(fold: Fold, *, positions: bool = True) -> Rows:
    """The rows by table and key; without positions, what depends on the order of recording is left out."""
    for table in fold.state.tables().values():
        _check_indexes(table)
    return {
        name: {key: row if positions else _without_positions(row) for key, row in table.rows.items()}
        for name, table in fold.state.tables().items()
    }


def _check_indexes(table: Table[Any]) -> None:
    """A column that is indexed must not change in a row's life: a fold that goes on from rows would find others."""
    for column, index in table.by.items():
        stale = [key for key, row in table.rows.items() if key not in index.get(getattr(row, column))]
        assert not stale, f"{table.spec.name}.{column} changed after it was indexed, in the rows {stale}"


def _without_positions(row: Any) -> tuple[Any, ...]:
    names = [name for name in row._fields if name.endswith("position") or name == "recorded_at"]
    stripped: tuple[Any, ...] = row._replace(**dict.fromkeys(names, 0))
    return stripped


SubjectFact = tuple[str, Payload]
"""A subject, and a fact about it."""


class RecordedFact(NamedTuple):
    """A fact before it has a number, with its source and its hour after the start."""

    source: str
    subject: str
    at: int
    data: Payload


def numbered(facts: Iterable[RecordedFact]) -> list[Decoded]:
    """The facts as events, numbered by their sources in this order."""
    numbers: dict[str, int] = {}
    events = []
    for fact in facts:
        number = numbers[fact.source] = numbers.get(fact.source, 0) + 1
        events.append(event(fact.data, fact.subject, number=number, at=fact.at, source=fact.source))
    return events


sources = st.sampled_from([IMPORT, AGENT])
devices = st.sampled_from(["d1", "d2", "d3"])
slots = st.sampled_from(["s1", "s2", "s3"])
nodes = st.sampled_from(["n1", "n2"])
workloads = st.sampled_from(["w1", "w2", "w3"])
hours = st.integers(0, 9)
_names = st.sampled_from([None, "a", "b"])
_amounts = st.integers(0, 2000)

insertions = st.builds(DeviceInserted, slot=slots, serial=_names, uuid=_names, model=_names)
removals = st.builds(DeviceRemoved, slot=slots, retired=st.booleans())
failures = st.builds(DeviceFailed, kind=st.sampled_from(["DBE", "OTB"]), slot=st.none() | slots)
errors = st.builds(
    DeviceErrorsObserved,
    kind=st.sampled_from(["XID 13", "XID 31"]),
    cause=st.sampled_from(["application", "hardware"]),
    count=st.integers(1, 3),
    first_at=hours.map(hour),
)
error_facts = st.builds(RecordedFact, st.just(AGENT), devices, hours, errors)
device_facts = st.builds(
    RecordedFact, sources, devices, hours, st.one_of(insertions, removals, removals, insertions, failures)
)
slot_facts = st.builds(
    RecordedFact, sources, slots, hours, st.builds(SlotDeclared, node=nodes, index=st.integers(0, 3))
)
node_facts = st.builds(
    RecordedFact,
    sources,
    nodes,
    hours,
    st.builds(NodeRegistered, gpu_count=st.integers(0, 8), gpu_model=_names) | st.builds(NodeDecommissioned),
)
_shares = st.lists(st.builds(DeviceShare, device=devices, gpu_milli=_amounts), max_size=3).map(tuple)
workload_facts = st.builds(
    RecordedFact,
    sources,
    workloads,
    hours,
    st.one_of(
        st.builds(WorkloadSubmitted, gpu_milli=_amounts, owner=_names),
        st.builds(WorkloadScheduled, gpu_milli=_amounts, node=st.none() | nodes, devices=_shares),
        st.builds(WorkloadEnded, outcome=_names),
    ),
)

_ids = st.lists(st.sampled_from(["g1", "g2", "g2::0", "g2::1"]), max_size=3).map(tuple)
_held = st.lists(st.builds(AllocatedDevices, resource=st.sampled_from(["r1", "r2"]), devices=_ids), max_size=2)
_claimed = st.builds(AllocatedClaim, claim=st.just("c"), driver=st.just("d"), pool=nodes, device=st.just("gpu-0"))
allocation_facts = st.builds(
    RecordedFact,
    st.just(AGENT),
    st.sampled_from(["n1/ns/p/c1", "n1/ns/p/c2"]),
    hours,
    st.builds(
        AllocationObserved,
        node=st.just("n1"),
        namespace=st.just("ns"),
        pod=st.just("p"),
        container=st.just("c"),
        resources=_held.map(tuple),
        claims=st.lists(_claimed, max_size=2).map(tuple),
    )
    | st.builds(AllocationEnded),
)

CARDS = ("GPU-1", "GPU-2")
_codes = st.lists(st.sampled_from(["79", "94", "DCGM_FR_1"]), max_size=2).map(tuple)
_entities = st.lists(
    st.builds(HealthEntity, type=st.just("GPU_UUID"), value=st.sampled_from(CARDS))
    | st.just(HealthEntity(type="NVSWITCH", value="0")),
    max_size=2,
).map(tuple)
_reports = st.builds(
    NodeHealthReported,
    monitor=st.just("syslog"),
    check=st.sampled_from(["XID", "SXID"]),
    healthy=st.booleans(),
    fatal=st.booleans(),
    message=st.sampled_from(["", "fell off the bus"]),
    action=st.sampled_from(["NONE", "RESTART_VM", "REPLACE_VM"]),
    codes=_codes,
    entities=_entities,
    count=st.integers(1, 3),
)
_verdicts = st.builds(DeviceHealthChanged, healthy=st.booleans(), kind=st.sampled_from(["XID 79", "XID 48"]))
health_facts = st.one_of(
    st.builds(RecordedFact, st.just(AGENT), st.just("n1"), hours, _reports),
    st.builds(RecordedFact, st.just(AGENT), st.just("n1"), hours, _reports),
    st.builds(RecordedFact, st.just(AGENT), st.sampled_from(CARDS), hours, _verdicts | failures),
    st.builds(
        RecordedFact,
        st.just(INVENTORY),
        st.sampled_from(CARDS),
        hours,
        st.builds(DeviceDetached, slot=st.just("n1/0000:17:00.0"), name=st.just("g")),
    ),
    st.builds(RecordedFact, st.just(IMPORT), st.just("n1"), hours, st.builds(NodeDecommissioned)),
)
"""What two checks of a monitor and the agent of a node find, and the ends of its cards and of itself."""


REPLACING = NodeRegistered | NodeDecommissioned | AllocationObserved | AllocationEnded
"""A fact of these types replaces the last one of its aggregate, whichever type that had."""


def _identity(fact: RecordedFact) -> tuple[object, ...]:
    if isinstance(fact.data, NodeHealthReported):
        return (fact.data.TYPE, fact.data.check, fact.at)
    if isinstance(fact.data, DeviceHealthChanged | DeviceFailed) and fact.subject in CARDS:
        return (DeviceHealthChanged.TYPE, fact.subject, fact.at)
    # What happens to devices needs no such care: things of one time amount to the same in any order.
    if isinstance(fact.data, DeviceInserted | DeviceRemoved | DeviceFailed | DeviceErrorsObserved):
        return (id(fact),)
    kind = fact.data.AGGREGATE if isinstance(fact.data, REPLACING) else fact.data.TYPE
    return (kind, fact.subject, fact.at)


_crowded_facts = st.builds(
    RecordedFact,
    sources,
    st.sampled_from(["d1", "d2"]),
    hours,
    st.builds(DeviceInserted, slot=st.sampled_from(["s1", "s2"]), serial=_names)
    | st.builds(DeviceRemoved, slot=st.sampled_from(["s1", "s2"]), retired=st.booleans()),
)
crowded = st.lists(_crowded_facts, max_size=16)
"""Insertions and removals of two devices in two slots, which mostly contradict each other."""

allocated = st.lists(allocation_facts, max_size=24, unique_by=_identity)
"""Repeated reports on what two containers have."""

worked = st.lists(workload_facts, max_size=24, unique_by=_identity)
"""What happens to three workloads."""

health = st.lists(health_facts, max_size=24, unique_by=_identity)
"""Findings about two cards, a switch and their node."""

_mixed_facts = st.one_of(
    device_facts, device_facts, error_facts, slot_facts, node_facts, workload_facts, workload_facts, allocation_facts
)
facts = crowded | allocated | health | st.lists(_mixed_facts, max_size=24, unique_by=_identity)
"""Facts about few things in a short time; of two facts of one kind about one thing one is later."""
