"""The openb trace of a GPU cluster (Weng et al., USENIX ATC 2023): a list of nodes and a list of pods.

The trace has no owners, placements or GPU ids: a pod's class is its QoS, an allocation is an amount without a device,
and GPUs get the ids `<node>/<k>`. Times are seconds from a start that the trace does not give. A pod that is Running
and ends with the trace is still running. Names must be unique within a list; memory grows with their number.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from gpuledger.events.device import DeviceInserted
from gpuledger.events.node import NodeRegistered
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.tools.importers import fields
from gpuledger.tools.importers.draft import Draft, Read, Reject
from gpuledger.tools.importers.errors import ImportFileError, RowError
from gpuledger.tools.importers.tables import TableFile

SOURCE = "/import/openb"
FORMAT = "openb/1"
"""Must increase whenever the same files would yield other events, because their numbers would change."""

START = datetime(2023, 1, 1, tzinfo=UTC)

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
RUNNING = "Running"
PHASES = ("Pending", RUNNING, "Succeeded", "Failed", "Unknown")
GPUS_MAX = 4096
GPU_MILLI = 1000

_REGISTERED, _DECLARED, _INSERTED, _SUBMITTED, _ENDED, _SCHEDULED, _ENDED_AT_ONCE = range(7)


class TraceNode(NamedTuple):
    """A checked row of the node list."""

    line: int
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str | None


class Pod(NamedTuple):
    """A checked row of the pod list; `gpu_milli` is the sum of its requests."""

    line: int
    name: str
    cpu_milli: int
    memory_mib: int
    gpu_milli: int
    qos: str | None
    phase: str
    created: datetime
    scheduled: datetime | None
    deleted: datetime | None

    @property
    def last(self) -> datetime:
        """The latest of its times."""
        return max(time for time in (self.created, self.scheduled, self.deleted) if time is not None)


R = TypeVar("R", TraceNode, Pod)


def parse_node(line: int, row: Sequence[str]) -> TraceNode:
    """The row of the node list, checked.

    Raises:
        RowError: a field is invalid; the message says which and why.
    """
    name, cpu_milli, memory_mib, gpu, model = row
    gpus = fields.whole(gpu, "gpu", GPUS_MAX)
    fields.name(name, "sn")
    fields.name(f"{name}/{gpus}", "the GPUs' id")
    return TraceNode(
        line,
        name,
        fields.whole(cpu_milli, "cpu_milli"),
        fields.whole(memory_mib, "memory_mib"),
        gpus,
        fields.label(model, "model"),
    )


def parse_pod(line: int, row: Sequence[str], start: datetime) -> Pod:
    """The row of the pod list, checked.

    Raises:
        RowError: a field is invalid; the message says which and why.
    """
    name, cpu_milli, memory_mib, num_gpu, gpu_milli, _spec, qos, phase, creation, deletion, scheduled = row
    if phase not in PHASES:
        raise RowError(f"the pod_phase {fields.shown(phase)} is unknown; known are {', '.join(PHASES)}")
    pod = Pod(
        line,
        fields.name(name, "name"),
        fields.whole(cpu_milli, "cpu_milli"),
        fields.whole(memory_mib, "memory_mib"),
        _amount(num_gpu, gpu_milli),
        fields.label(qos, "qos"),
        phase,
        fields.seconds_after(start, creation, "creation_time"),
        fields.seconds_after(start, scheduled, "scheduled_time") if scheduled else None,
        fields.seconds_after(start, deletion, "deletion_time") if deletion else None,
    )
    _check_order(pod)
    return pod


def _amount(num_gpu: str, gpu_milli: str) -> int:
    gpus, milli = fields.whole(num_gpu, "num_gpu", GPUS_MAX), fields.whole(gpu_milli, "gpu_milli", GPU_MILLI)
    return milli if gpus == 1 else gpus * GPU_MILLI


def _check_order(pod: Pod) -> None:
    if pod.scheduled is not None:
        fields.in_order(pod.created, "creation_time", pod.scheduled, "scheduled_time")
        if pod.deleted is not None:
            fields.in_order(pod.scheduled, "scheduled_time", pod.deleted, "deletion_time")
    if pod.deleted is not None:
        fields.in_order(pod.created, "creation_time", pod.deleted, "deletion_time")


def drafts_of_node(node: TraceNode, start: datetime) -> list[Draft]:
    """The node and its GPUs, which exist from the start."""
    registered = NodeRegistered(
        gpu_count=node.gpus, gpu_model=node.model, cpu_milli=node.cpu_milli, memory_mib=node.memory_mib
    )
    drafts = [Draft(start, _REGISTERED, node.line, "node.registered", node.name, registered)]
    for index in range(node.gpus):
        gpu, inserted = f"{node.name}/{index}", DeviceInserted(slot=f"{node.name}/{index}", model=node.model)
        declared = SlotDeclared(node=node.name, index=index)
        drafts.append(Draft(start, _DECLARED, node.line, f"slot.declared/{index:04}", gpu, declared))
        drafts.append(Draft(start, _INSERTED, node.line, f"device.inserted/{index:04}", gpu, inserted))
    return drafts


def drafts_of_pod(pod: Pod, end: datetime) -> list[Draft]:
    """The pod's events; `end` is the end of the trace."""
    submitted = WorkloadSubmitted(
        gpu_milli=pod.gpu_milli, workload_class=pod.qos, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib
    )
    drafts = [Draft(pod.created, _SUBMITTED, pod.line, "workload.submitted", pod.name, submitted)]
    if pod.scheduled is not None:
        scheduled = WorkloadScheduled(gpu_milli=pod.gpu_milli)
        drafts.append(Draft(pod.scheduled, _SCHEDULED, pod.line, "workload.scheduled", pod.name, scheduled))
    if pod.deleted is not None and not (pod.phase == RUNNING and pod.deleted == end):
        rank = _ENDED_AT_ONCE if pod.deleted == pod.scheduled else _ENDED
        ended = WorkloadEnded(outcome=pod.phase)
        drafts.append(Draft(pod.deleted, rank, pod.line, "workload.ended", pod.name, ended))
    return drafts


class OpenbReading:
    """The two lists; `start` is the moment of second 0, in UTC. It reads the pods twice, first to find the end."""

    source = SOURCE

    def __init__(self, nodes: Path, pods: Path, start: datetime = START) -> None:
        self.epoch = ""
        self.end: datetime | None = None
        self._nodes = TableFile(nodes, NODE_COLUMNS, "openb's node list")
        self._pods = pods
        self._start = start

    def read(self) -> Iterator[Read]:
        """See `gpuledger.tools.importers.draft.Reading.read`."""
        first, second = self._pod_table(), self._pod_table()
        for pod in first.rows(self._pod_parser()):
            if isinstance(pod, Pod):
                self.end = max(pod.last, self.end or pod.last)
            yield ()
        yield from self._read_nodes()
        for pod in second.rows(self._pod_parser()):
            yield pod if isinstance(pod, Reject) else drafts_of_pod(pod, self.end or pod.last)
        if first.digest != second.digest:
            raise ImportFileError(f"{self._pods} changed while it was read; nothing was imported. Import it again.")
        cause = f"{FORMAT}\n{self._start.isoformat()}\n{self._nodes.digest}\n{second.digest}"
        self.epoch = hashlib.sha256(cause.encode()).hexdigest()

    def _read_nodes(self) -> Iterator[Read]:
        for node in self._nodes.rows(unique(parse_node)):
            if isinstance(node, Reject):
                yield node
            else:
                self.end = self.end or self._start
                yield drafts_of_node(node, self._start)

    def _pod_table(self) -> TableFile:
        return TableFile(self._pods, POD_COLUMNS, "openb's pod list")

    def _pod_parser(self) -> Callable[[int, Sequence[str]], Pod]:
        return unique(lambda line, row: parse_pod(line, row, self._start))


def unique(parse: Callable[[int, Sequence[str]], R]) -> Callable[[int, Sequence[str]], R]:
    """The same parser, which rejects a name that an earlier row has; rejected rows do not count."""
    names: set[str] = set()

    def parse_once(line: int, row: Sequence[str]) -> R:
        parsed = parse(line, row)
        if parsed.name in names:
            raise RowError(f"the name {fields.shown(parsed.name)} occurs in an earlier row")
        names.add(parsed.name)
        return parsed

    return parse_once
