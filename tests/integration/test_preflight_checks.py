"""Checks run with programs of others that print what they print on nodes; a real server takes their reports."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import grpc
import pytest

from gpuledger.api.preflight import CheckName, Detail, ExitCode, GangKey, NotRun, Variable
from gpuledger.healthreports.healthevents_pb2 import ProcessingStrategy, RecommendedAction
from gpuledger.preflight import process
from gpuledger.preflight.conclusion import CheckConclusion
from gpuledger.preflight.machine import machine_instance_type
from support.checks import (
    DISCOVERY,
    ENGINE,
    HANG,
    LIST,
    UUIDS,
    Machine,
    Taken,
    Watch,
    diagnosis,
    gang_files,
    perf,
    taking_reports,
    write_gang,
)
from support.ledgers import DEADLINE_S
from support.servers import short_directory
from support.waiting import eventually

DIAG = CheckName.DCGM_DIAG
LOOPBACK = CheckName.NCCL_LOOPBACK
GOOD = diagnosis(memory="Pass/Pass", pcie="Pass/Pass")


@pytest.fixture
def machine() -> AsyncIterator[Machine]:  # type: ignore[misc]
    with short_directory() as folder:
        found = Machine(Path(folder))
        found.has("nvidia-smi", LIST)
        found.has("dcgmi", "Error: unknown command", discovery=DISCOVERY, diag=GOOD)
        yield found


@pytest.fixture
async def taken(machine: Machine) -> AsyncIterator[Taken]:
    async with taking_reports(machine.socket) as taken:
        yield taken


async def test_a_diagnostic_that_passes_reports_its_cards_healthy(machine: Machine, taken: Taken) -> None:
    assert await machine.run(DIAG) == ExitCode.PASSED
    assert machine.calls("dcgmi") == [f"discovery -l --host {ENGINE}", f"diag -r 1 --host {ENGINE} -j -i 4,6"]
    event = taken.only()
    assert event.isHealthy
    assert [one.entityValue for one in event.entitiesImpacted] == list(UUIDS)
    assert event.metadata[Detail.POD_NAME] == "pod-0"
    assert machine.result().outcome == "passed"


async def test_a_card_that_fails_is_reported_fatal_by_its_uuid(machine: Machine, taken: Taken) -> None:
    machine.has("dcgmi", "", code=226, discovery=DISCOVERY, diag=diagnosis(memory="Pass/Fail", pcie="Pass/Pass"))
    assert await machine.run(DIAG) == ExitCode.FAILED
    bad, good = taken.events
    assert (bad.isFatal, bad.recommendedAction) == (True, RecommendedAction.CONTACT_SUPPORT)
    assert [one.entityValue for one in bad.entitiesImpacted] == [UUIDS[1]]
    assert (good.isHealthy, [one.entityValue for one in good.entitiesImpacted]) == (True, [UUIDS[0]])
    assert machine.result().codes == tuple(bad.errorCode)


async def test_a_failure_that_is_stored_only_blocks_no_pod(machine: Machine, taken: Taken) -> None:
    machine.has("dcgmi", "", discovery=DISCOVERY, diag=diagnosis(memory="Fail/Fail"))
    machine.environ[Variable.STRATEGY] = "STORE_ONLY"
    assert await machine.run(DIAG) == ExitCode.PASSED
    assert {event.processingStrategy for event in taken.events} == {ProcessingStrategy.STORE_ONLY}
    assert machine.result().outcome == "failed"


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("no engine named", "No host engine is named"),
        ("no dcgmi", "dcgmi cannot be run: No such file or directory"),
        ("no engine", "cannot be used"),
        ("another node", "is it one of another node?"),
        ("no nvidia-smi", "nvidia-smi cannot be run"),
        ("no card", "No devices were found"),
    ],
)
async def test_what_cannot_be_carried_out_says_so_and_blames_nobody(
    machine: Machine, taken: Taken, trouble: str, words: str
) -> None:
    unreachable = "Error: unable to establish a connection to the specified host: 127.0.0.1\n"
    match trouble:
        case "no engine named":
            del machine.environ[Variable.HOSTENGINE]
        case "no dcgmi" | "no nvidia-smi":
            (machine.folder / "bin" / trouble.removeprefix("no ")).unlink()
        case "no engine":
            machine.has("dcgmi", unreachable, code=1)
            for word in ("discovery", "diag"):
                (machine.folder / "bin" / f"dcgmi.{word}").unlink()
        case "another node":
            machine.has("dcgmi", "", discovery=DISCOVERY.replace("00000002", "00000009").replace("0002", "0009"))
        case "no card":
            machine.has("nvidia-smi", "No devices were found\n", code=6)
    assert await machine.run(DIAG) == ExitCode.NOT_REPORTED
    event = taken.only()
    assert words in event.message
    assert (event.isHealthy, list(event.errorCode), len(event.entitiesImpacted)) == (True, ["NOT_REPORTED"], 0)
    assert event.processingStrategy == ProcessingStrategy.STORE_ONLY
    machine.environ[Variable.NOT_RUN] = NotRun.CONTINUE
    assert await machine.run(DIAG) == ExitCode.PASSED
    assert machine.result().outcome == "not-reported"


BUSY = "Error: A diag instance is already running, cannot run a new diag until the current one finishes\n"


async def test_an_engine_that_is_at_another_pods_diagnosis_is_waited_for(machine: Machine, taken: Taken) -> None:
    machine.has("dcgmi", "", discovery=DISCOVERY, diag=BUSY)

    async def sleep(_s: float) -> None:
        machine.has("dcgmi", "", discovery=DISCOVERY, diag=GOOD)

    assert await machine.run(DIAG, sleep=sleep) == ExitCode.PASSED
    assert len(machine.calls("dcgmi")) == 3
    assert taken.outcomes() == ["passed"]


async def test_an_engine_that_stays_busy_is_given_up_in_time(machine: Machine, taken: Taken) -> None:
    machine.has("dcgmi", "", discovery=DISCOVERY, diag=BUSY)
    watch = Watch()
    assert await machine.run(DIAG, sleep=watch.sleep, monotonic=watch.monotonic) == ExitCode.NOT_REPORTED
    assert "already running" in taken.only().message


async def test_a_diagnostic_that_hangs_is_ended(machine: Machine, taken: Taken) -> None:
    machine.has("dcgmi", "", then=HANG, discovery=DISCOVERY)
    (machine.folder / "bin" / "dcgmi.diag").unlink()
    machine.environ[Variable.CHECK_TIMEOUT] = "2s"
    assert await machine.run(DIAG) == ExitCode.FAILED
    event = taken.only()
    assert (event.isFatal, list(event.errorCode)) == (False, ["DCGM_DIAG_TIMEOUT"])


@pytest.mark.parametrize(("busbw", "code"), [(200.0, ExitCode.PASSED), (9.0, ExitCode.FAILED)])
async def test_the_bus_between_cards_has_to_reach_the_threshold(
    machine: Machine, taken: Taken, busbw: float, code: int
) -> None:
    machine.has("all_reduce_perf", perf(busbw))
    assert await machine.run(LOOPBACK) == code
    assert machine.calls("all_reduce_perf") == ["-b 8 -e 256M -f 2 -g 2"]
    result = machine.result()
    assert (result.bandwidth_gbps, result.threshold_gbps) == (busbw, 10.0)
    assert taken.only().metadata[Detail.BANDWIDTH] == f"{busbw:g}"


async def test_one_card_has_no_bus_and_is_skipped(machine: Machine, taken: Taken) -> None:
    machine.has("nvidia-smi", LIST.splitlines()[0])
    assert await machine.run(LOOPBACK) == ExitCode.PASSED
    assert machine.result().outcome == "skipped"
    assert list(taken.only().errorCode) == ["SKIPPED"]


PART = "  MIG 3g.40gb     Device  0: (UUID: MIG-00000000-0000-0000-0000-00000000000{})\n"
DIVIDED = "".join(f"{line}\n{PART.format(place)}" for place, line in enumerate(LIST.splitlines(), start=1))


@pytest.mark.parametrize("check", [DIAG, LOOPBACK])
async def test_cards_that_mig_divides_are_skipped(machine: Machine, taken: Taken, check: str) -> None:
    machine.has("nvidia-smi", DIVIDED)
    assert await machine.run(check) == ExitCode.PASSED
    assert taken.outcomes() == ["skipped"]
    assert "MIG" in machine.result().message


async def test_a_check_that_breaks_blames_no_hardware(
    machine: Machine, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> CheckConclusion:
        raise KeyError("gbps")

    monkeypatch.setattr(process, "CHECKS", {DIAG: broken})
    assert await machine.run(DIAG) == ExitCode.NOT_REPORTED
    assert "KeyError" in machine.result().message
    assert taken.outcomes() == ["not-reported"]


async def test_an_error_of_nccl_has_its_action(machine: Machine, taken: Taken) -> None:
    machine.has("all_reduce_perf", "n: Test NCCL failure common.cu:1005 'internal error - please report'\n", code=3)
    assert await machine.run(LOOPBACK) == ExitCode.FAILED
    event = taken.only()
    assert (list(event.errorCode), event.isFatal) == (["NCCL_INTERNAL_ERROR"], True)
    assert event.recommendedAction == RecommendedAction.RUN_DCGMEUD


async def test_a_program_that_fails_without_a_word_is_no_fault_of_hardware(machine: Machine, taken: Taken) -> None:
    machine.has("all_reduce_perf", "", code=3)
    assert await machine.run(LOOPBACK) == ExitCode.FAILED
    assert not taken.only().isFatal


@pytest.mark.parametrize(
    ("output", "code", "expected", "codes"),
    [
        (perf(200.0).rpartition("# Out")[0], 0, ExitCode.PASSED, ()),
        (perf(9.0).rpartition("# Out")[0], 0, ExitCode.FAILED, ("NCCL_BW_DEGRADED",)),
        (perf(200.0).rpartition("# Out")[0], 139, ExitCode.FAILED, ("NCCL_UNKNOWN_ERROR",)),
        (perf(200.0), 3, ExitCode.FAILED, ("NCCL_UNKNOWN_ERROR",)),
        ("", 0, ExitCode.FAILED, ("NCCL_UNKNOWN_ERROR",)),
    ],
)
async def test_the_end_of_the_program_counts_as_well(
    machine: Machine, taken: Taken, output: str, code: int, expected: int, codes: tuple[str, ...]
) -> None:
    machine.has("all_reduce_perf", output, code=code)
    assert await machine.run(LOOPBACK) == expected
    assert tuple(taken.only().errorCode) == codes
    assert not taken.only().isFatal or codes == ("NCCL_BW_DEGRADED",)


async def test_nccl_gets_the_topology_file_of_the_instance_type(machine: Machine, taken: Taken) -> None:
    machine.has("all_reduce_perf", perf(200.0), then=f'echo "$NCCL_TOPO_FILE" > {machine.folder}/topology')
    (machine.folder / "p5.xml").write_text("")
    machine.environ |= {
        Variable.TOPOLOGY_MAPPING: '{"p5.48xlarge": "p5.xml"}',
        Variable.TOPOLOGY_FOLDER: str(machine.folder),
    }

    product = machine.folder / "product_name"
    product.write_text("p5.48xlarge\n")
    assert await machine.run(LOOPBACK, instance_type=partial(machine_instance_type, product)) == ExitCode.PASSED
    assert (machine.folder / "topology").read_text().strip() == str(machine.folder / "p5.xml")
    assert taken.only().metadata[Detail.TOPOLOGY] == str(machine.folder / "p5.xml")


async def test_an_invalid_setting_ends_with_2_and_is_reported(machine: Machine, taken: Taken) -> None:
    machine.environ[Variable.DIAG_LEVEL] = "9"
    assert await machine.run(DIAG) == ExitCode.CONFIGURATION
    event = taken.only()
    assert (list(event.errorCode), event.metadata[Detail.ERROR]) == (["CONFIG_ERROR"], Variable.DIAG_LEVEL)
    assert machine.result().outcome == "config-error"


async def test_a_gang_that_does_not_form_ends_with_3(
    machine: Machine, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuledger.preflight.allreduce.has_torch", lambda: True)
    gang, watch = machine.folder / "gang", Watch()
    write_gang(gang, gang_files("pod-0:10.0.0.1"))
    machine.environ[Variable.GANG_PATH] = str(gang)
    code = await machine.run(CheckName.NCCL_ALLREDUCE, sleep=watch.sleep, monotonic=watch.monotonic)
    assert code == ExitCode.GANG_TIMEOUT
    event = taken.only()
    assert (event.isHealthy, event.isFatal, list(event.errorCode)) == (False, False, ["GANG_TIMEOUT"])
    assert event.metadata[Detail.GANG] == "gang-a"
    assert [one.entityValue for one in event.entitiesImpacted] == list(UUIDS)
    assert machine.result().gang_wait_s == 600.0


async def test_the_successor_of_a_pod_whose_gang_has_passed_skips_the_check_at_once(
    machine: Machine, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuledger.preflight.allreduce.has_torch", lambda: True)
    gang = machine.folder / "gang"
    write_gang(gang, gang_files("pod-0:10.0.0.1", expected=1) | {GangKey.PASSED_COUNT: "7"})
    machine.environ[Variable.GANG_PATH] = str(gang)
    assert await machine.run(CheckName.NCCL_ALLREDUCE) == ExitCode.PASSED
    assert taken.outcomes() == ["skipped"]
    assert "The other pods of the gang gang-a (7) have passed before this one came" in machine.result().message


async def test_a_pod_without_a_gang_skips_the_check_of_gangs(machine: Machine, taken: Taken) -> None:
    machine.environ[Variable.GANG_PATH] = str(machine.folder / "none")
    assert await machine.run(CheckName.NCCL_ALLREDUCE) == ExitCode.PASSED
    assert taken.outcomes() == ["skipped"]


async def test_a_report_is_sent_again_until_it_is_taken(machine: Machine) -> None:
    passing = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
    async with taking_reports(machine.socket, *passing) as taken:
        assert await machine.run(DIAG) == ExitCode.PASSED
    assert taken.outcomes() == ["passed"]


@pytest.mark.parametrize("passes", [True, False])
async def test_a_report_that_is_refused_ends_with_4_whatever_was_found(machine: Machine, passes: bool) -> None:
    machine.has("dcgmi", "", discovery=DISCOVERY, diag=GOOD if passes else diagnosis(memory="Fail/Fail"))
    async with taking_reports(machine.socket, grpc.StatusCode.PERMISSION_DENIED) as taken:
        assert await machine.run(DIAG) == ExitCode.NOT_REPORTED
    assert taken.requests == []
    assert "PERMISSION_DENIED" in machine.result().message


async def test_without_a_gateway_the_report_is_given_up_in_its_time(machine: Machine) -> None:
    machine.environ |= {Variable.REPORT_TIMEOUT: "1s", Variable.NOT_RUN: NotRun.CONTINUE}
    assert await machine.run(DIAG) == ExitCode.NOT_REPORTED
    assert machine.result().outcome == "not-reported"


@pytest.mark.parametrize(("check", "code"), [(DIAG, ExitCode.PASSED), ("dcgm", ExitCode.CONFIGURATION)])
async def test_the_command_becomes_the_process_of_the_check(
    machine: Machine, taken: Taken, check: str, code: int
) -> None:
    machine.with_python()
    command = (sys.executable, "-c", "from gpuledger.cli.main import main; main()", "preflight", "run", check)
    process = await asyncio.create_subprocess_exec(*command, env=machine.environ, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(DEADLINE_S):
        _, errors = await process.communicate()
    assert process.returncode == code, errors.decode()
    assert taken.outcomes() == ["passed"] * (code == ExitCode.PASSED)


async def test_sigterm_ends_the_process_and_its_programs(machine: Machine) -> None:
    began = machine.folder / "began"
    machine.has("nvidia-smi", LIST, then=f"touch {began}; {HANG}")
    machine.with_python()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gpuledger.preflight", DIAG, env=machine.environ, stderr=asyncio.subprocess.PIPE
    )
    await eventually(lambda: asyncio.sleep(0, began.exists()))
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(DEADLINE_S):
        await process.communicate()
    assert process.returncode == ExitCode.NOT_REPORTED
    assert machine.result().message == "The check was stopped before its end."
