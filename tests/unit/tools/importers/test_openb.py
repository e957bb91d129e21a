"""openb's node and pod lists: which events rows give, and which are turned down and why."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuledger.events.device import DeviceInserted
from gpuledger.events.node import NodeRegistered
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.source import SourceCompleted
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.tools.importers.draft import Reject
from gpuledger.tools.importers.errors import ImportFormatError
from gpuledger.tools.importers.run import import_openb
from support.imports import NODE_HEADER, NOW, POD_HEADER, openb, recorded, write

NODE = "n1,64000,262144,2,T4"
POD = "p1,12000,16384,1,460,,LS,Succeeded,0,3600,60.5"
START = datetime(2023, 1, 1, tzinfo=UTC)


def _nodes(folder: Path, *rows: str) -> Path:
    return write(folder / "nodes.csv", NODE_HEADER, *rows)


def _pods(folder: Path, *rows: str) -> Path:
    return write(folder / "pods.csv", POD_HEADER, *rows)


async def test_nodes_their_gpus_and_pods(tmp_path: Path) -> None:
    imported = await openb(_nodes(tmp_path, NODE), _pods(tmp_path, POD, "p2,1,1,0,0,,,Pending,5,7200,"))
    assert imported.reasons() == []
    assert [(event.subject, event.data) for event in imported.events] == [
        ("n1", NodeRegistered(gpu_count=2, gpu_model="T4", cpu_milli=64_000, memory_mib=262_144)),
        ("n1/0", SlotDeclared(node="n1", index=0)),
        ("n1/1", SlotDeclared(node="n1", index=1)),
        ("n1/0", DeviceInserted(slot="n1/0", model="T4")),
        ("n1/1", DeviceInserted(slot="n1/1", model="T4")),
        ("p1", WorkloadSubmitted(gpu_milli=460, workload_class="LS", cpu_milli=12_000, memory_mib=16_384)),
        ("p2", WorkloadSubmitted(gpu_milli=0, cpu_milli=1, memory_mib=1)),
        ("p1", WorkloadScheduled(gpu_milli=460)),
        ("p1", WorkloadEnded(outcome="Succeeded")),
        ("p2", WorkloadEnded(outcome="Pending")),
        ("/import/openb", SourceCompleted(events=10)),
    ]
    assert imported.events[7].time == START + timedelta(seconds=60.5)
    assert imported.result.end == START + timedelta(hours=2)


@pytest.mark.parametrize(
    ("num_gpu", "gpu_milli", "amount"),
    [("0", "0", 0), ("0", "500", 0), ("1", "460", 460), ("1", "1000", 1000), ("2", "1000", 2000), ("8", "5", 8000)],
)
async def test_how_much_a_pod_requests(tmp_path: Path, num_gpu: str, gpu_milli: str, amount: int) -> None:
    row = f"p1,1,1,{num_gpu},{gpu_milli},,LS,Failed,0,2,1"
    imported = await openb(_nodes(tmp_path), _pods(tmp_path, row))
    submitted, scheduled = (event.data for event in imported.events[:2])
    assert isinstance(submitted, WorkloadSubmitted)
    assert isinstance(scheduled, WorkloadScheduled)
    assert (submitted.gpu_milli, scheduled.gpu_milli) == (amount, amount)


async def test_a_running_pod_that_ends_with_the_trace_is_still_running(tmp_path: Path) -> None:
    running = "{},1,1,1,1000,,LS,Running,0,{},0"
    pods = _pods(tmp_path, running.format("early", 50), running.format("late", 99), "x,1,1,1,1000,,LS,Failed,0,99,0")
    imported = await openb(_nodes(tmp_path), pods)
    ended = [event.subject for event in imported.events if isinstance(event.data, WorkloadEnded)]
    assert ended == ["early", "x"]


async def test_a_pod_that_ends_at_once_is_scheduled_before_it_ends(tmp_path: Path) -> None:
    imported = await openb(_nodes(tmp_path), _pods(tmp_path, "p1,1,1,1,1000,,LS,Failed,7,7,7"))
    assert [kind for _, kind, _ in imported.recorded()] == [
        "workload.submitted",
        "workload.scheduled",
        "workload.ended",
        "source.completed",
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("n2,1,1,2", "the row has 4 columns, the header 5"),
        (",1,1,2,T4", "sn is empty"),
        ("n1,1,1,2,T4", "the name 'n1' occurs in an earlier row"),
        ("n2,1,1,-2,T4", "gpu is not a non-negative whole number: '-2'"),
        ("n2,1,1,two,T4", "gpu is not a non-negative whole number: 'two'"),
        ("n2,1,1,4097,T4", "gpu is 4097; 4096 is the limit"),
        ("n2,1.5,1,2,T4", "cpu_milli is not a non-negative whole number: '1.5'"),
        ("n2,1,,2,T4", "memory_mib is empty"),
        ("n2,1,9223372036854775808,2,T4", "memory_mib is 9223372036854775808; 9223372036854775807 is the limit"),
        (f"{'n' * 252},1,1,2,T4", "the GPUs' id has 254 characters; 253 is the limit"),
        (f"n2,1,1,2,{'T' * 254}", "model has 254 characters; 253 is the limit"),
    ],
)
async def test_a_bad_node(tmp_path: Path, row: str, reason: str) -> None:
    imported = await openb(_nodes(tmp_path, NODE, row), _pods(tmp_path))
    assert imported.reasons() == [(3, reason)]
    assert imported.rejects[0].file.endswith("nodes.csv")
    assert imported.result.events == 6


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (POD, "the name 'p1' occurs in an earlier row"),
        (
            "p2" + POD[2:].replace("Succeeded", "Lost"),
            "the pod_phase 'Lost' is unknown; known are Pending, Running, Succeeded, Failed, Unknown",
        ),
        ("p2,1,1,1,1001,,LS,Failed,0,2,1", "gpu_milli is 1001; 1000 is the limit"),
        ("p2,1,1,1,-1,,LS,Failed,0,2,1", "gpu_milli is not a non-negative whole number: '-1'"),
        ("p2,1,1,x,0,,LS,Failed,0,2,1", "num_gpu is not a non-negative whole number: 'x'"),
        ("p2,1,1,1,1,,LS,Failed,,2,1", "creation_time is empty"),
        ("p2,1,1,1,1,,LS,Failed,-1,2,1", "creation_time is not a non-negative number of seconds: '-1'"),
        ("p2,1,1,1,1,,LS,Failed,nan,2,1", "creation_time is not a non-negative number of seconds: 'nan'"),
        ("p2,1,1,1,1,,LS,Failed,0,999999999999,1", "deletion_time is after the year 9999: '999999999999'"),
        ("p2,1,1,1,1,,LS,Failed,5,2,", "end before start: deletion_time is before creation_time"),
        ("p2,1,1,1,1,,LS,Failed,5,9,2", "end before start: scheduled_time is before creation_time"),
        ("p2,1,1,1,1,,LS,Failed,0,2,5", "end before start: deletion_time is before scheduled_time"),
    ],
)
async def test_a_bad_pod(tmp_path: Path, row: str, reason: str) -> None:
    imported = await openb(_nodes(tmp_path), _pods(tmp_path, POD, row))
    assert imported.reasons() == [(3, reason)]
    assert (imported.rejects[0].file, imported.rejects[0].text) == (str(tmp_path / "pods.csv"), row)
    assert imported.result.events == 4


async def test_a_row_that_was_turned_down_does_not_take_the_name(tmp_path: Path) -> None:
    imported = await openb(_nodes(tmp_path), _pods(tmp_path, POD.replace("LS,Succeeded", "LS,Lost"), POD))
    assert imported.result.rejects == 1
    assert imported.result.events == 4


async def test_another_start_is_another_epoch_with_other_times(tmp_path: Path) -> None:
    nodes, pods, ledger, rejects = _nodes(tmp_path, NODE), _pods(tmp_path, POD), MemoryLedger(), list[Reject]()
    first = await openb(nodes, pods, ledger)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    second = await import_openb(ledger, nodes, pods, now=NOW, rejects=rejects.append, start=start)
    assert second.epoch != first.result.epoch
    assert second.published == second.events == first.result.events
    assert (await recorded(ledger))[-1].time == start + timedelta(hours=1)


async def test_lists_given_the_wrong_way_round_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match="is not openb's pod list, whose header is"):
        await openb(_pods(tmp_path), _nodes(tmp_path))
