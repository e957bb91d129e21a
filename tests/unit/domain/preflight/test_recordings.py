"""Every recorded output of dcgmi diag, nccl-tests, torchrun and nvidia-smi is read by its parser, with its outcome."""

from contextlib import suppress

import pytest

from gpuledger.domain.preflight import dcgm_diag, nccl_tests, nvidia_smi, torchrun
from gpuledger.domain.preflight.errors import CardLostError, DcgmError, NvidiaSmiError
from gpuledger.domain.preflight.findings import Verdict, of_diagnosis, of_nccl_tests
from support.paths import ROOT

FOLDER = ROOT.parent / "shared" / "recordings"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no outputs of tools in {FOLDER}"),
]

DIAGNOSES = {
    "3.3.1-r2-t4-head.txt": ("3.3.1", Verdict.NOT_JUDGED, ()),
    "3.3.8-r3-h100x8-fail-cuinit.txt": ("3.3.8", Verdict.FAILED, ("DCGM_MEMORY_FAIL",) * 8),
    "3.x-r1-fail-meta.json": (None, Verdict.PASSED, ("DCGM_FR_PERSISTENCE_MODE", "DCGM_SOFTWARE_WARN")),
    "3.x-r1-pass-meta.json": (None, Verdict.PASSED, ()),
    "3.x-r3-row-remap-pending-deployment-error.txt": (None, Verdict.FAILED, ("DCGM_SOFTWARE_FAIL",)),
    "3.x-r3-t400-skip.json": (None, Verdict.NOT_JUDGED, ()),
    "3.x-r4-rtx2060-persistence-fail.txt": (None, Verdict.PASSED, ("DCGM_FR_PERSISTENCE_MODE",)),
    "4.x-gb10-level1.json": ("4.2.3", Verdict.PASSED, ("DCGM_FR_PERSISTENCE_MODE",)),
    "4.x-gb10-level2-partial-skip.json": ("4.2.3", Verdict.NOT_JUDGED, ("DCGM_FR_PERSISTENCE_MODE",)),
    "4.x-gb10-level2-plugins-allowed.json": ("4.5.2", Verdict.PASSED, ("DCGM_FR_PERSISTENCE_MODE",)),
    "legacy-nvvs-per_gpu_json.json": ("1.7", Verdict.FAILED, ("DCGM_FR_STRESS_LEVEL",) * 3),
}

RUNS = {
    "aws-eks-mpijob-prefixed.txt": (437.79, Verdict.PASSED, ()),
    "aws-p5-2nodes-rank-prefixed.txt": (78.33, Verdict.NOT_JUDGED, ()),
    "aws-topology-aware-header.txt": (369.42, Verdict.PASSED, ()),
    "dranet-nvidia-perf.txt": (36.67, Verdict.PASSED, ()),
    "fail-2nodes-hang-6min.txt": (None, Verdict.FAILED, ("NCCL_SYSTEM_ERROR",)),
    "fail-4090-3nodes-internal-error.txt": (None, Verdict.FAILED, ("NCCL_INTERNAL_ERROR",)),
    "fail-connection-closed-2018.txt": (None, Verdict.FAILED, ("NCCL_SYSTEM_ERROR",)),
    "fail-single-gpu-hang-lo.txt": (None, Verdict.FAILED, ("NCCL_REMOTE_ERROR",)),
    "gke-a3-rdma-gib.txt": (32.2, Verdict.PASSED, ()),
    "h100-2x4-device-list.txt": (None, Verdict.NOT_JUDGED, ()),
    "init-hang-pytorch.txt": (None, Verdict.NOT_JUDGED, ()),
    "mpijob-gke.txt": (31.88, Verdict.PASSED, ()),
    "nccl-tests-2.17-1gpu-fail_bw.txt": (None, Verdict.NOT_JUDGED, ()),
    "nccl-tests-2.17-1gpu-pass.txt": (None, Verdict.NOT_JUDGED, ()),
    "superbench-allreduce-nccl2.8-a100x8.log": (235.03, Verdict.PASSED, ()),
    "superbench-alltoall.log": (224.31, Verdict.PASSED, ()),
}

REPORTS = {
    "k8s-no-healthy-devices-events.txt": (0, None, None),
    "torch1.11-launch.txt": (1, 0, 1),
    "torch2.7-single-failure.txt": (1, 3, 1),
    "torch2.8-multi-failure-sigterm.txt": (3, 0, -15),
}

CARDS_OF_LISTS = {"h100-mig-590.48.01-L.txt": (1, 4), "h200-mig-590.48.01-L.txt": (1, 5), "mig-docs-single.txt": (1, 7)}


def names(tool: str) -> set[str]:
    return {path.name for path in (FOLDER / tool).iterdir() if path.name != "README.md"}


def text(tool: str, name: str) -> str:
    return (FOLDER / tool / name).read_text()


def test_every_recording_has_an_outcome_here() -> None:
    assert names("dcgmi-diag") == {*DIAGNOSES, "nvsentinel-preflight-dcgm-diag-log.jsonl"}
    assert names("nccl") == set(RUNS)
    assert names("torchrun") == set(REPORTS)


@pytest.mark.parametrize("name", DIAGNOSES)
def test_diagnoses(name: str) -> None:
    diagnosis = dcgm_diag.parse(text("dcgmi-diag", name))
    judgement = of_diagnosis(diagnosis)
    codes = tuple(finding.code for finding in judgement.findings)
    assert (diagnosis.version, judgement.verdict, codes) == DIAGNOSES[name]


def test_a_log_about_a_diagnosis_is_none() -> None:
    with pytest.raises(DcgmError, match="no diagnosis"):
        dcgm_diag.parse(text("dcgmi-diag", "nvsentinel-preflight-dcgm-diag-log.jsonl"))


@pytest.mark.parametrize("name", RUNS)
def test_runs_of_nccl_tests(name: str) -> None:
    run = nccl_tests.parse(text("nccl", name))
    judgement = of_nccl_tests(run, threshold_gbps=5.0)
    codes = tuple(finding.code for finding in judgement.findings)
    assert (run.bandwidth_gbps, judgement.verdict, codes) == RUNS[name]


@pytest.mark.parametrize("name", REPORTS)
def test_reports_of_torchrun(name: str) -> None:
    report = torchrun.parse(text("torchrun", name))
    cause = report.earliest
    found = (None, None) if cause is None else (cause.rank, cause.exit_code)
    assert (len(report.failures), *found) == REPORTS[name]


def test_nvidia_smi_lists_cards_or_reports_why_not() -> None:
    """Outputs of its other commands are refused, or name cards as lists do."""
    for name in names("nvidia-smi"):
        output = text("nvidia-smi", name)
        if name in ("error-messages.txt", "error-gpu-lost-610.txt"):
            with pytest.raises(CardLostError, match="Unable to determine"):
                nvidia_smi.cards(output)
        elif name.endswith("-L.txt") or name in CARDS_OF_LISTS:
            cards = nvidia_smi.cards(output)
            counts = len(cards), sum(len(card.parts) for card in cards)
            assert counts == CARDS_OF_LISTS.get(name, (1, 0)), name
        else:
            with suppress(NvidiaSmiError):
                assert nvidia_smi.cards(output), name
