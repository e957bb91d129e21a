"""Reads the openb trace (Weng et al., USENIX ATC 2023) for simulations: its list of nodes and its list of pods.

A simulation of a list with a bad row would be one of another cluster, so the first bad row fails it: with its file,
line and column.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY_RATIO, WHOLE
from gpuledger.domain.sharing.hints import PodHints
from gpuledger.domain.sharing.machines import Needs
from gpuledger.domain.sharing.model import Hint, LabelRequirement, LabelSelector, PodRequest, Refusal
from gpuledger.domain.sharing.requests import request_of
from gpuledger.events.sharing import SHARED_DEVICES_MAX
from gpuledger.tools.errors import RequestError
from gpuledger.tools.importers import fields
from gpuledger.tools.importers.draft import Reject
from gpuledger.tools.importers.errors import ImporterError, RowError
from gpuledger.tools.importers.openb import GPU_MILLI, NODE_COLUMNS
from gpuledger.tools.importers.tables import TableFile
from gpuledger.tools.scheduling.workload import MODEL, SimulatedNode, SimulatedPod

POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time")
GPU_MILLI_COLUMN: Final = POD_COLUMNS.index("gpu_milli")
MODELS_SEPARATOR: Final = "|"
"""Between the models of `gpu_spec`, any one of which the pod takes."""

NO_DEVICES: Final = PodRequest(())

T = TypeVar("T", SimulatedNode, SimulatedPod)


def read_nodes(file: Path) -> list[SimulatedNode]:
    """The nodes of a list.

    Raises:
        RequestError: the file cannot be read, is none of nodes, or has a bad row.
    """
    nodes = _read(file, NODE_COLUMNS, "openb's node list", _node)
    if not any(node.gpus for node in nodes):
        raise RequestError(f"{file} has no node with GPUs", "Name a list of nodes whose column gpu is above 0")
    return nodes


def read_pods(file: Path) -> tuple[list[SimulatedPod], int]:
    """The pods of a list, in the order of their creation; ends of pods do not count.

    With how many of them do not ask for a whole percent of a GPU: they are given the next one.

    Raises:
        RequestError: the file cannot be read, is none of pods, or has a bad row.
    """
    created: dict[str, float] = {}
    rounded = 0

    def parse(row: Sequence[str]) -> SimulatedPod:
        nonlocal rounded
        *of_pod, creation_time = row
        pod = _pod(of_pod)
        rounded += int(of_pod[GPU_MILLI_COLUMN]) % (GPU_MILLI // WHOLE) > 0
        created[pod.name] = _seconds(creation_time)
        return pod

    pods = _read(file, POD_COLUMNS, "openb's pod list", parse)
    if not any(pod.gpu_percent for pod in pods):
        hint = "Name a list of pods whose column num_gpu is above 0"
        raise RequestError(f"{file} has no pod that asks for GPUs", hint)
    return sorted(pods, key=lambda pod: created[pod.name]), rounded


def _read(file: Path, columns: tuple[str, ...], what: str, parse: Callable[[Sequence[str]], T]) -> list[T]:
    try:
        rows = TableFile(file, columns, what).rows(lambda _line, row: parse(row))
        return list(_checked(file, rows))
    except ImporterError as error:
        raise RequestError(str(error), "Name a file in the format of the openb trace (docs/importing.md)") from error


def _checked(file: Path, rows: Iterable[T | Reject]) -> Iterable[T]:
    names: set[str] = set()
    for row in rows:
        if isinstance(row, Reject):
            raise RequestError(f"{file}, line {row.line}: {row.reason}", "Correct the row or delete it")
        if row.name in names:
            raise RequestError(f"{file}: the name {fields.shown(row.name)} is in two rows", "Rename one of them")
        names.add(row.name)
        yield row


def _node(row: Sequence[str]) -> SimulatedNode:
    name, cpu_milli, memory_mib, gpu, model = row
    return SimulatedNode(
        fields.name(name, "sn"),
        fields.whole(gpu, "gpu", SHARED_DEVICES_MAX),
        fields.whole(cpu_milli, "cpu_milli"),
        fields.whole(memory_mib, "memory_mib"),
        fields.label(model, "model"),
    )


def _pod(row: Sequence[str]) -> SimulatedPod:
    name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec = row
    needs = Needs(fields.whole(cpu_milli, "cpu_milli"), fields.whole(memory_mib, "memory_mib"))
    gpus = fields.whole(num_gpu, "num_gpu", SHARED_DEVICES_MAX)
    milli = fields.whole(gpu_milli, "gpu_milli", GPU_MILLI)
    return SimulatedPod(fields.name(name, "name"), request_for(gpus, milli, gpu_spec), needs)


def request_for(gpus: int, milli: int, gpu_spec: str = "") -> PodRequest:
    """What a pod asks for: of one GPU a share, of several the whole; without GPUs nothing.

    Raises:
        RowError: of one GPU it asks for nothing.
    """
    if not gpus:
        return NO_DEVICES
    percent = gpus * WHOLE if gpus > 1 else percent_of(milli)
    if not percent:
        raise RowError("gpu_milli is 0, and num_gpu is not: of one GPU it is 1 to 1000")
    models = frozenset(filter(None, map(str.strip, gpu_spec.split(MODELS_SEPARATOR))))
    selector = LabelSelector((LabelRequirement(MODEL, "In", models),)) if models else None
    request = request_of(
        {GPU_CORE: percent, GPU_MEMORY_RATIO: percent}, PodHints({GPU: Hint(selector=selector)} if selector else {})
    )
    if request is None or isinstance(request, Refusal):
        raise RowError(f"num_gpu and gpu_milli: {request and request.reason}")
    return request


def percent_of(milli: int) -> int:
    """Thousandths of a GPU in percent, rounded up: a pod gets no less than it asks for."""
    return -(-milli * WHOLE // GPU_MILLI)


def _seconds(text: str) -> float:
    """A time of the trace, in seconds."""
    try:
        seconds = float(text)
    except ValueError as error:
        raise RowError(f"creation_time is not a number of seconds: {fields.shown(text)}") from error
    if not 0 <= seconds < float("inf"):
        raise RowError(f"creation_time is not a number of seconds from 0: {fields.shown(text)}")
    return seconds
