"""Small samples of each shape of other tools' output, and what comes of them."""

import json

import pytest

from gpuledger.domain.preflight import dcgm_diag, dcgm_discovery, nccl_errors, nccl_tests, nvidia_smi, torchrun
from gpuledger.domain.preflight.diagnosis import Diagnosis, DiagStatus
from gpuledger.domain.preflight.errors import (
    CardLostError,
    DcgmError,
    EngineBusyError,
    HostengineError,
    NoCardError,
    NvidiaSmiError,
)
from gpuledger.domain.preflight.findings import (
    Finding,
    Verdict,
    nccl_finding,
    of_diagnosis,
    of_lost_card,
    of_nccl_tests,
)
from gpuledger.domain.preflight.nccl_errors import NcclCode

UUID = "GPU-5269b708-678a-b1a8-60f0-c90406537486"
HEADING = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong  #iters\n"


def diagnosis_of(name: str, status: str, *, section: str = "Hardware", **warning: object) -> Diagnosis:
    """A diagnosis of one test on card 3, as DCGM 4.x prints it."""
    result = {"entity_group": "GPU", "entity_id": 3, "status": status, "warnings": [warning] if warning else []}
    test = {"name": name, "results": [result], "test_summary": {"status": status}}
    return dcgm_diag.parse(
        json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": section, "tests": [test]}]}})
    )


@pytest.mark.parametrize(
    ("test", "status", "code", "fatal", "action"),
    [
        ("memory", "Fail", "DCGM_MEMORY_FAIL", True, "CONTACT_SUPPORT"),
        ("GPU Memory", "FAIL", "DCGM_MEMORY_FAIL", True, "CONTACT_SUPPORT"),
        ("pcie", "Fail", "DCGM_PCIE_FAIL", True, "CONTACT_SUPPORT"),
        ("NVLink", "Fail", "DCGM_NVLINK_FAIL", True, "CONTACT_SUPPORT"),
        ("targeted_stress", "Fail", "DCGM_STRESS_FAIL", True, "RUN_DCGMEUD"),
        ("eud", "Fail", "DCGM_OTHER_FAIL", True, "CONTACT_SUPPORT"),
        ("targeted_power", "Warn", "DCGM_STRESS_WARN", False, "NONE"),
    ],
)
def test_a_failed_test_has_the_action_of_its_family(
    test: str, status: str, code: str, fatal: bool, action: str
) -> None:
    judgement = of_diagnosis(diagnosis_of(test, status), {3: UUID})
    assert [one._replace(message="") for one in judgement.findings] == [Finding(code, fatal, action, "", UUID)]
    assert judgement.verdict is (Verdict.FAILED if fatal else Verdict.PASSED)


@pytest.mark.parametrize(
    ("number", "severity", "expected"),
    [
        (29, 5, ("DCGM_FR_PERSISTENCE_MODE", False, "NONE")),
        (85, 6, ("DCGM_FR_PENDING_ROW_REMAP", True, "COMPONENT_RESET")),
        (14, 2, ("DCGM_FR_NVLINK_DOWN", True, "CONTACT_SUPPORT")),
        (999, 2, ("DCGM_ERROR_999", True, "CONTACT_SUPPORT")),
    ],
)
def test_errors_of_the_software_go_by_their_number(number: int, severity: int, expected: tuple[str, bool, str]) -> None:
    found = diagnosis_of(
        "software", "Fail", section="Deployment", error_id=number, error_severity=severity, warning="w"
    )
    assert [one[:3] for one in of_diagnosis(found).findings] == [expected]
    assert found.results[0].judged is (DiagStatus.WARN if number == 29 else DiagStatus.FAIL)


def test_what_was_skipped_is_neither_good_nor_bad() -> None:
    assert of_diagnosis(diagnosis_of("memory", "Skip"))[:2] == (Verdict.NOT_JUDGED, ())


def test_a_diagnosis_that_could_not_run_is_an_error_of_its_own() -> None:
    with pytest.raises(DcgmError, match="no driver"):
        dcgm_diag.parse('noise\n{"DCGM Diagnostic": {"runtime_error": "no driver"}}')
    with pytest.raises(HostengineError, match="dcgm:5555"):
        dcgm_diag.parse("Error: unable to establish a connection to the specified host: dcgm:5555")


BUSY = "A diag instance is already running, cannot run a new diag until the current one finishes"
REMAP = "GPU 3 has uncorrectable memory errors and row remappings are pending"


def test_an_engine_that_is_at_another_diagnosis_is_busy() -> None:
    for output in (json.dumps({"DCGM Diagnostic": {"runtime_error": BUSY}}), f"Error: (-39): {BUSY}\n"):
        with pytest.raises(EngineBusyError, match="already running"):
            dcgm_diag.parse(output)


def test_a_card_that_keeps_a_diagnosis_from_running_fails() -> None:
    found = of_diagnosis(dcgm_diag.parse(json.dumps({"DCGM GPU Diagnostic": {"runtime_error": REMAP}})), {3: UUID})
    assert (found.verdict, found.findings[0].fatal, found.findings[0].gpu) == (Verdict.FAILED, True, UUID)
    assert REMAP in found.message


def test_what_failed_before_a_diagnosis_broke_off_counts() -> None:
    results = [{"entity_group": "GPU", "entity_id": 3, "status": "Fail"}]
    root = {"runtime_error": "killed", "test_categories": [{"tests": [{"name": "memory", "results": results}]}]}
    found = of_diagnosis(dcgm_diag.parse(json.dumps({"DCGM Diagnostic": root})), {3: UUID})
    assert [one.code for one in found.findings] == ["DCGM_MEMORY_FAIL"]
    results[0]["status"] = "Pass"
    with pytest.raises(DcgmError, match="killed"):
        dcgm_diag.parse(json.dumps({"DCGM Diagnostic": root}))


@pytest.mark.parametrize("entity", [-1, "-1", None, True])
def test_no_card_is_blamed_that_is_not_named(entity: object) -> None:
    results = [{"entity_group": "GPU", "entity_id": entity, "status": "Fail"}]
    document = {"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "memory", "results": results}]}]}}
    assert [one.gpu for one in dcgm_diag.parse(json.dumps(document)).results] == [None]


def test_the_table_of_dcgm_4_names_cards_below_each_test() -> None:
    rows = ["|-----  Hardware  ----------+-----|", "| memory | Fail |", "|  | GPU0: Pass |", "|  | GPU1: Fail |"]
    rows += ["| Warning: GPU1 | Detected 2 errors |", "+---------------------------+-----+"]
    results = sorted(dcgm_diag.parse("\n".join(rows)).results, key=lambda one: one.gpu or 0)
    assert [(one.gpu, one.status.value, len(one.errors)) for one in results] == [(0, "pass", 0), (1, "fail", 1)]


def test_indices_of_the_host_engine() -> None:
    table = f"1 GPU found (Active).\n| GPU ID | Device Information |\n| 5 | Name: H100 |\n|   | Device UUID: {UUID} |\n"
    assert dcgm_discovery.indices(f"{table}| Switch ID |\n| 7 |\n") == {UUID: 5}
    assert dcgm_discovery.indices("0 GPUs found.") == {}
    with pytest.raises(HostengineError):
        dcgm_discovery.indices("Error: Unable to connect to host engine. Host engine connection invalid.")
    with pytest.raises(DcgmError, match="lists no cards"):
        dcgm_discovery.indices("")


def test_cards_of_nvidia_smi() -> None:
    listed = f"GPU 0: H100 (UUID: {UUID})\n  MIG 1g.10gb     Device  0: (UUID: MIG-{UUID[4:]})\n"
    assert nvidia_smi.cards(listed)[0].parts == (("1g.10gb", f"MIG-{UUID[4:]}"),)
    assert [one.uuid for one in nvidia_smi.cards(f"{UUID}\n{UUID}\n")] == [UUID]
    for output, error in [("No devices were found", NoCardError), ("Failed to initialize NVML", NvidiaSmiError)]:
        with pytest.raises(error):
            nvidia_smi.cards(output)
    with pytest.raises(CardLostError) as lost:
        nvidia_smi.cards(f"{UUID}\nUnable to determine the device handle for GPU1: Unknown Error")
    assert of_lost_card(lost.value)[:3] == ("DCGM_FR_FALLEN_OFF_BUS", True, "RESTART_BM")


@pytest.mark.parametrize(
    ("row", "end", "verdict", "codes"),
    [
        ("[1,0]<stdout>: 8M 2 float sum -1 1 2 12.5 0 1 2 11.5 0 20", "0 OK", Verdict.PASSED, []),
        ("0: 8388608 2 float sum -1 1 2 3.5 0 1 2 4.5 0 20", "0 OK", Verdict.FAILED, ["NCCL_BW_DEGRADED"]),
        ("8388608 2 float sum -1 1 2 12.5 3 1 2 12.5 0 20", "3 FAILED", Verdict.FAILED, ["NCCL_WRONG_RESULT"]),
        ("8388608 2 float sum -1 1 2 0.00 0 1 2 0.00 0 20", "0 OK", Verdict.NOT_JUDGED, []),
        ("8388608 2 float sum -1 1 2 12.5 N/A 1 2 11.5 N/A 20", "0 OK", Verdict.PASSED, []),
        ("8388608 2 float sum -1 1 2 12.5 0 N/A N/A N/A N/A 20", "0 OK", Verdict.PASSED, []),
        ("8388608 2 float sum -1 1 2 nan 0 1 2 12.5 0 20", "0 OK", Verdict.FAILED, ["NCCL_UNKNOWN_ERROR"]),
        (
            "8388608 2 float sum -1 1 2 99999999999999 0 1 2 99999999999999 0 20",
            "0 OK",
            Verdict.FAILED,
            ["NCCL_UNKNOWN_ERROR"],
        ),
        ("8388608 2 float sum -1 1 2 12.5 nan 1 2 12.5 0 20", "0 OK", Verdict.FAILED, ["NCCL_WRONG_RESULT"]),
    ],
)
def test_bandwidth_of_nccl_tests(row: str, end: str, verdict: Verdict, codes: list[str]) -> None:
    text = f"ssh noise\n{HEADING}{row}\n# Out of bounds values : {end}\n# Avg bus bandwidth    : 1.5\n"
    judgement = of_nccl_tests(nccl_tests.parse(text), 10.0)
    assert (judgement.verdict, [one.code for one in judgement.findings]) == (verdict, codes)


def test_sizes_too_small_to_measure_count_for_nothing() -> None:
    rows = "".join(f"{size}M 2 float sum -1 1 2 12.5 0 1 2 12.5 0 20\n" for size in (2, 4, 8))
    text = f"{HEADING}8 2 float sum -1 0 inf inf 0 0 -nan -nan 0 20\n{rows}# Avg bus bandwidth    : inf\n"
    assert nccl_tests.parse(text).bandwidth_gbps == 12.5


def test_a_run_that_ended_well_needs_no_summary() -> None:
    """So NVSentinel's design shows what `all_reduce_perf` prints."""
    text = "#   size  count  type  redop  time  algbw  busbw\n     8M  2097152  float  sum  1.23  6.50  12.19\n"
    run = nccl_tests.parse(text)
    assert (run.bandwidth_gbps, of_nccl_tests(run, 10.0).verdict) == (12.19, Verdict.NOT_JUDGED)
    assert of_nccl_tests(run, 10.0, has_ended=True).verdict is Verdict.PASSED
    assert of_nccl_tests(run, 12.2, has_ended=True).findings[0].code == NcclCode.BANDWIDTH


@pytest.mark.parametrize(
    ("line", "code", "fatal", "action"),
    [
        ("ncclSystemError: System call failed", NcclCode.SYSTEM_ERROR, True, "CONTACT_SUPPORT"),
        ("Test NCCL failure a.cu:1 'internal error - please report", NcclCode.INTERNAL_ERROR, True, "RUN_DCGMEUD"),
        ("Test NCCL failure a.cu:1 'invalid usage (run with", NcclCode.INVALID_USAGE, False, "NONE"),
        ("Watchdog caught collective operation timeout: W", NcclCode.TIMEOUT, False, "NONE"),
        ("remote process exited or there was a network error", NcclCode.REMOTE_ERROR, True, "CONTACT_SUPPORT"),
        ("Test NCCL failure a.cu:1 'unhandled cuda error'", NcclCode.SYSTEM_ERROR, True, "CONTACT_SUPPORT"),
        (
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            NcclCode.SYSTEM_ERROR,
            True,
            "CONTACT_SUPPORT",
        ),
        ("RuntimeError: CUDA error: no kernel image is available", NcclCode.INVALID_USAGE, False, "NONE"),
        ("unhandled cuda error: out of memory", NcclCode.INVALID_USAGE, False, "NONE"),
        ("g105:1:2 [0] NCCL INFO misc/socket.cc:505 -> 2", NcclCode.UNKNOWN, False, "NONE"),
    ],
)
def test_errors_of_nccl(line: str, code: NcclCode, fatal: bool, action: str) -> None:
    failure = nccl_errors.classify_failure(f"noise\n{line}\n")
    assert failure == (code, "" if code is NcclCode.UNKNOWN else line)
    assert nccl_finding(*failure)[:3] == (code, fatal, action)


def test_memory_that_must_not_be_locked_blames_no_hardware() -> None:
    log = (
        "n:1:2 [0] transport/net_ib.cc:9 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory\n"
    )
    failure = nccl_errors.classify(f"{log}n: Test NCCL failure a.cu:1 'unhandled system error'\n")
    assert failure is not None
    assert (failure.code, "ibv_reg_mr" in failure.evidence) == (NcclCode.INVALID_USAGE, True)


def test_the_root_cause_of_torchrun() -> None:
    other = "[1]:\n  rank      : 2 (local_rank: 0)\n  exitcode  : -9 (pid: 7)\n"
    root = (
        "Root Cause (first observed failure):\n[0]:\n  host : w1\n  rank : 3 (local_rank: 1)\n  exitcode : 2 (pid: 8)\n"
    )
    report = torchrun.parse(
        f"Failures:\n{other}---------------\n{root}  traceback : Traceback\n  E: lost\n==========\nend"
    )
    assert report.root is not None
    assert report.root == (0, 3, 1, "w1", 2, None, "E: lost")
    cut = torchrun.parse(other).earliest
    assert cut is not None
    assert (torchrun.parse(other).root, cut.signal) == (None, "SIGKILL")
