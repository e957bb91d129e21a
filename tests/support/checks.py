"""Runs checks of pods in tests: programs of others that print what they are given, and a server that takes reports."""

import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty

from gpuledger.api.preflight import Detail, GangKey, Variable
from gpuledger.events.preflight import PreflightResult
from gpuledger.healthreports.healthevents_pb2 import HealthEvent, HealthEvents
from gpuledger.healthreports.protocol import SERVICE, handlers
from gpuledger.preflight.machine import CheckMachine
from gpuledger.preflight.process import run_check
from gpuledger.preflight.programs import run_program

NOON: Final = datetime(2026, 1, 2, 12, tzinfo=UTC)
UUIDS: Final = ("GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002")
ENGINE: Final = "127.0.0.1:5555"


def listing(uuids: Sequence[str]) -> str:
    """What `nvidia-smi -L` prints of these cards."""
    return "".join(f"GPU {place}: NVIDIA H100 (UUID: {uuid})\n" for place, uuid in enumerate(uuids))


def discovery(uuids: Sequence[str]) -> str:
    """What `dcgmi discovery -l` prints where the node's host engine has two cards as numbers 4 and 6."""
    rows = (
        f"| {number}      | Name: NVIDIA H100   |\n|        | Device UUID: {uuid}  |\n+----+----+\n"
        for number, uuid in zip((4, 6), uuids, strict=True)
    )
    return f"2 GPUs found.\n{''.join(rows)}"


LIST: Final = listing(UUIDS)
DISCOVERY: Final = discovery(UUIDS)

PROGRAM: Final = """#!/bin/sh
echo "$@" >> '{folder}/{name}.calls'
for word in "$@"; do
  if [ -f '{folder}/{name}.'"$word" ]; then cat '{folder}/{name}.'"$word"; exit {code}; fi
done
cat '{folder}/{name}.output'
{then}
exit {code}
"""
HANG: Final = "sleep 600"
HEADER: Final = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"


@dataclass
class Machine:
    """What a check finds on its machine: programs on the path, an environment, and where its result is left."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "bin").mkdir()
        self.environ = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            Variable.POD_NAMESPACE: "training",
            Variable.POD_NAME: "pod-0",
            Variable.POD_UID: "u-0",
            Variable.NODE_NAME: "worker-01",
            Variable.TERMINATION_LOG: str(self.folder / "termination-log"),
            Variable.SOCKET: f"unix://{self.socket}",
            Variable.REPORT_TIMEOUT: "5s",
            Variable.HOSTENGINE: ENGINE,
            **self.environ,
        }

    @property
    def socket(self) -> Path:
        return self.folder / "health.sock"

    def has(self, name: str, output: str, *, code: int = 0, then: str = "", **by_word: str) -> None:
        """A program that prints this, or what stands for one of its arguments."""
        bin_folder = self.folder / "bin"
        (bin_folder / f"{name}.output").write_text(output)
        for word, text in by_word.items():
            (bin_folder / f"{name}.{word}").write_text(text)
        program = bin_folder / name
        program.write_text(PROGRAM.format(folder=bin_folder, name=name, code=code, then=then))
        program.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        """The arguments that a program was called with, one line a call."""
        return (self.folder / "bin" / f"{name}.calls").read_text().splitlines()

    async def run(self, check: str, **changes: Any) -> int:
        """Run a check; returns its exit code."""
        given = {"clock": lambda: NOON, "monotonic": time.monotonic, **changes}
        return await run_check(check, CheckMachine(self.environ, run_program, **given))

    def result(self) -> PreflightResult:
        """What the check left for Kubernetes."""
        return PreflightResult.model_validate_json((self.folder / "termination-log").read_bytes())

    def with_python(self) -> None:
        """The environment that our own programs need."""
        for name in ("HOME", "LANG", "PYTHONPATH"):
            if name in os.environ:
                self.environ[name] = os.environ[name]


@dataclass
class Taken:
    """What a server that takes reports has; `answers` are the statuses of its first answers."""

    requests: list[HealthEvents] = field(default_factory=list)
    answers: list[grpc.StatusCode] = field(default_factory=list)

    @property
    def events(self) -> list[HealthEvent]:
        return [event for request in self.requests for event in request.events]

    def only(self) -> HealthEvent:
        (event,) = self.events
        return event

    def outcomes(self) -> list[str]:
        return [event.metadata[Detail.OUTCOME] for event in self.events if Detail.OUTCOME in event.metadata]


@asynccontextmanager
async def taking_reports(socket: Path, *answers: grpc.StatusCode) -> AsyncIterator[Taken]:
    """A server of NVSentinel's protocol on a socket."""
    taken = Taken(answers=list(answers))

    async def occurred(request: HealthEvents, context: "grpc.aio.ServicerContext[HealthEvents, Empty]") -> Empty:
        if taken.answers:
            await context.abort(taken.answers.pop(0), "not now")
        taken.requests.append(request)
        return Empty()

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, dict(handlers(occurred))),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield taken
    finally:
        await server.stop(None)


def write_gang(folder: Path, files: Mapping[str, str]) -> None:
    """Mount a ConfigMap as the kubelet does: a new folder, and the link `..data` turned to it at once."""
    folder.mkdir(exist_ok=True)
    versions = sum(1 for _ in folder.glob("..v*"))
    version = folder / f"..v{versions}"
    version.mkdir()
    for key, text in files.items():
        (version / key).write_text(text)
        if not (folder / key).is_symlink():
            (folder / key).symlink_to(f"..data/{key}")
    turned = folder / "..data_tmp"
    turned.symlink_to(version.name)
    turned.rename(folder / "..data")


def gang_files(*peers: str, expected: int = 2, port: int = 29500) -> dict[str, str]:
    """The files of a gang with these peers, `pod:ip`."""
    return {
        GangKey.EXPECTED_COUNT: str(expected),
        GangKey.PEERS: "".join(f"{peer}\n" for peer in peers),
        GangKey.MASTER_ADDRESS: min(peer.partition(":")[::2] for peer in peers)[1] if peers else "",
        GangKey.MASTER_PORT: str(port),
        GangKey.GANG_ID: "gang-a",
    }


class Watch:
    """Time that passes with each sleep, before which something may happen."""

    def __init__(self, before: Callable[[float], None] = lambda _: None) -> None:
        self.now_s = 0.0
        self._before = before

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self._before(self.now_s)


def diagnosis(**statuses: str) -> str:
    """The JSON of `dcgmi diag` 4.x: a status of every test, of the cards with numbers 4 and 6; `4=Fail` of one."""
    tests = [
        {
            "name": name,
            "results": [
                {"entity_group": "GPU", "entity_group_id": 1, "entity_id": number, "status": status}
                for number, status in zip((4, 6), statuses[name].split("/"), strict=True)
            ],
            "test_summary": {"status": "Fail" if "Fail" in statuses[name] else "Pass"},
        }
        for name in statuses
    ]
    return json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}})


def perf(busbw: float) -> str:
    """What `all_reduce_perf` prints of two cards with this bus bandwidth, in GB/s."""
    rows = "".join(
        f"{size:12d} {size // 4:12d}     float     sum      -1   100.0   1.0   {busbw:.2f}      0   100.0   1.0   "
        f"{busbw:.2f}      0\n"
        for size in (67108864, 134217728, 268435456)
    )
    devices = "".join(f"#  Rank  {place} Group  0 Pid 7 on n device  {place} [0x17] NVIDIA H100\n" for place in (0, 1))
    end = f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {busbw:.2f}\n"
    return f"# Using devices\n{devices}{HEADER}{rows}{end}"
