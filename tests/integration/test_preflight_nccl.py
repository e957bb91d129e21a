"""The workers of checks on the cards of this machine, over NCCL; a machine without any skips them and says so."""

import os
import subprocess
import sys

import pytest

from gpuledger.preflight.allreduce_command import TIMEOUT_S, launch_command
from gpuledger.preflight.bandwidth import WORKER as BANDWIDTH_WORKER
from gpuledger.preflight.gang import CompleteGang, GangMember
from gpuledger.preflight.programs import ProgramOutput, run_program
from gpuledger.preflight.workers import has_torch, module_command, results_in
from support.ports import free_ports

COUNT = "import torch; print(torch.cuda.device_count())"
RUN_MAX_S = 120.0

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cards() -> int:
    """How many cards PyTorch can use here."""
    if not has_torch():
        pytest.skip("PyTorch is not installed; nothing was reduced over NCCL")
    counted = subprocess.run((sys.executable, "-c", COUNT), capture_output=True, text=True, timeout=60, check=True)
    if not int(counted.stdout):
        pytest.skip("PyTorch sees no GPU on this machine; nothing was reduced over NCCL")
    return int(counted.stdout)


async def ran(command: tuple[str, ...], **variables: str) -> ProgramOutput:
    output = await run_program(command, RUN_MAX_S, {**os.environ, **variables})
    assert output.code == 0, output.all
    return output


async def test_all_cards_of_this_machine_reduce_over_nccl(cards: int) -> None:
    (port,) = free_ports(1)
    gang = CompleteGang("one-machine", (GangMember("pod-0", "127.0.0.1"),), "127.0.0.1", port)
    output = await ran(launch_command(gang, "pod-0", cards), **{TIMEOUT_S: "60"})
    results = results_in(output.text)
    assert {(one["backend"], one["ranks"], one["wrong"]) for one in results} == {("nccl", cards, 0)}
    assert sorted(one["rank"] for one in results) == list(range(cards))
    assert cards == 1 or all(one["gbps"] > 0 for one in results)


async def test_the_bandwidth_of_every_card_is_measured(cards: int) -> None:
    (found,) = results_in((await ran(module_command(BANDWIDTH_WORKER))).text)
    assert found["device"] == "cuda"
    assert {one["card"] for one in found["measures"]} == set(range(cards))
    assert all(one["gbps"] > 0 for one in found["measures"])
