"""Checks that need PyTorch, with its CPU build: two pods reduce over gloo, each in processes of its own."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpuledger.api.preflight import CheckName, Detail, ExitCode, Variable
from gpuledger.domain.preflight.nccl_errors import NcclCode
from gpuledger.preflight.allreduce import conclude, failure_of
from gpuledger.preflight.bandwidth import conclude as conclude_bandwidth
from gpuledger.preflight.errors import NotRunError
from gpuledger.preflight.programs import ProgramOutput
from gpuledger.preflight.workers import has_torch
from support.checks import UUIDS, Machine, gang_files, taking_reports, write_gang
from support.ports import free_ports
from support.servers import short_directory

torch = pytest.mark.skipif(not has_torch(), reason="PyTorch is not installed; make torch installs its CPU build")
CHECK_MAX_S = 60.0


@pytest.fixture
def pods() -> Iterator[list[Machine]]:
    """Two pods of one gang on this machine."""
    with ExitStack() as stack:
        (port,), found = free_ports(1), []
        for place in (0, 1):
            pod = Machine(Path(stack.enter_context(short_directory())))
            pod.with_python()
            pod.has("nvidia-smi", "No devices were found\n", code=6)
            write_gang(pod.folder / "gang", gang_files("pod-0:127.0.0.1", "pod-1:127.0.0.1", port=port))
            pod.environ |= {
                Variable.POD_NAME: f"pod-{place}",
                Variable.POD_IP: "127.0.0.1",
                Variable.GANG_PATH: str(pod.folder / "gang"),
                Variable.CHECK_TIMEOUT: "60s",
                Variable.ALLREDUCE_THRESHOLD: "0",
                "CUDA_VISIBLE_DEVICES": "",
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
            }
            found.append(pod)
        yield found


async def ended(pod: Machine) -> int | None:
    """The exit code of the check's own process in a pod."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gpuledger.preflight", CheckName.NCCL_ALLREDUCE, env=pod.environ
    )
    async with asyncio.timeout(CHECK_MAX_S):
        return await process.wait()


@torch
async def test_two_pods_of_a_gang_reduce_together(pods: list[Machine]) -> None:
    async with taking_reports(pods[0].socket) as first, taking_reports(pods[1].socket) as second:
        codes = await asyncio.gather(*map(ended, pods))
    assert codes == [ExitCode.PASSED, ExitCode.PASSED]
    results = [pod.result() for pod in pods]
    assert results[0].bandwidth_gbps == results[1].bandwidth_gbps
    assert (results[0].bandwidth_gbps or 0) > 0
    assert "of 2 ranks over gloo" in results[0].message
    events = (first.only(), second.only())
    assert [event.metadata[Detail.RANK] for event in events] == ["0", "1"]
    assert {(event.metadata[Detail.GANG], event.metadata[Detail.GANG_SIZE]) for event in events} == {("gang-a", "2")}


@pytest.mark.long
@torch
async def test_a_bandwidth_below_the_threshold_blocks_the_gang_and_no_node(pods: list[Machine]) -> None:
    for pod in pods:
        pod.environ[Variable.ALLREDUCE_THRESHOLD] = "100000"
    async with taking_reports(pods[0].socket) as first, taking_reports(pods[1].socket) as second:
        codes = await asyncio.gather(*map(ended, pods))
    assert codes == [ExitCode.FAILED, ExitCode.FAILED]
    events = (first.only(), second.only())
    assert {(*event.errorCode, event.isFatal) for event in events} == {(NcclCode.BANDWIDTH, False)}


@pytest.mark.long
@torch
async def test_a_peer_that_does_not_come_is_a_timeout_that_blames_nobody(pods: list[Machine]) -> None:
    pods[0].environ[Variable.CHECK_TIMEOUT] = "12s"
    async with taking_reports(pods[0].socket) as taken:
        assert await ended(pods[0]) == ExitCode.FAILED
    event = taken.only()
    assert (list(event.errorCode), event.isFatal) == ([NcclCode.TIMEOUT], False)


@torch
async def test_without_a_gpu_the_bandwidth_of_memory_is_measured_and_judges_nothing(pods: list[Machine]) -> None:
    async with taking_reports(pods[0].socket) as taken:
        assert await pods[0].run(CheckName.BANDWIDTH) == ExitCode.PASSED
    assert taken.outcomes() == ["skipped"]
    assert "No GPU was measured, only the host's memory" in pods[0].result().message


async def test_without_pytorch_the_checks_are_skipped(pods: list[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("allreduce", "bandwidth"):
        monkeypatch.setattr(f"gpuledger.preflight.{module}.has_torch", lambda: False)
    for check in (CheckName.NCCL_ALLREDUCE, CheckName.BANDWIDTH):
        async with taking_reports(pods[0].socket) as taken:
            assert await pods[0].run(check) == ExitCode.PASSED
        assert taken.outcomes() == ["skipped"]
        assert "PyTorch is not installed" in pods[0].result().message


def measured(*gbps: float) -> dict[str, object]:
    measures = [
        {"kind": "host-to-device", "card": card, "uuid": UUIDS[card], "gbps": value} for card, value in enumerate(gbps)
    ]
    return json.loads(json.dumps({"device": "cuda", "measures": measures}))  # type: ignore[no-any-return]


def test_a_card_whose_copies_are_slow_is_named() -> None:
    found = conclude_bandwidth(measured(25.0, 2.0), 5.0, UUIDS)
    assert (found.outcome, found.bandwidth_gbps) == ("failed", 2.0)
    assert [finding.gpu for finding in found.findings] == [UUIDS[1]]
    assert conclude_bandwidth(measured(25.0, 24.0), 5.0, UUIDS).outcome == "passed"


def test_values_that_come_out_wrong_are_fatal() -> None:
    found = conclude({"gbps": 100.0, "ranks": 16, "backend": "nccl", "wrong": 3}, 5.0, UUIDS)
    assert [(one.code, one.fatal) for one in found.findings] == [(NcclCode.WRONG_RESULT, True)]


def test_a_rank_that_lost_its_peer_is_a_remote_error() -> None:
    text = "[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3384, remote process "
    finding = failure_of(ProgramOutput(1, "", f"{text}exited or there was a network error, NCCL version 2.21.5"), 300.0)
    assert (finding.code, finding.fatal, finding.action) == (NcclCode.REMOTE_ERROR, True, "CONTACT_SUPPORT")


def test_a_port_that_is_taken_blames_no_hardware() -> None:
    text = "torch.distributed.DistNetworkError: The server socket has failed to listen: port: 29500, EADDRINUSE"
    with pytest.raises(NotRunError, match="The master's port is taken on this node"):
        failure_of(ProgramOutput(1, "", text), 300.0)
