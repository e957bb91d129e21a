"""No text whatsoever makes a parser of other tools' output fail otherwise than by its declared errors."""

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.preflight import dcgm_diag, dcgm_discovery, nccl_errors, nccl_tests, nvidia_smi, torchrun
from gpuledger.domain.preflight.errors import DcgmError, NvidiaSmiError, ToolOutputError
from gpuledger.domain.preflight.findings import of_diagnosis, of_nccl_tests

PIECES = [
    "GPU-5269b708-678a-b1a8-60f0-c90406537486",
    "GPU 0: NVIDIA H100 (UUID: GPU-5269b708-678a-b1a8-60f0-c90406537486)",
    "  MIG 1g.10gb     Device  0: (UUID: MIG-5269b708-678a-b1a8-60f0-c90406537486)",
    "No devices were found",
    "Error: unable to establish a connection to the specified host: h",
    "2 GPUs found.",
    "| 0      | Name: NVIDIA H100 |",
    "|        | Device UUID: GPU-5269b708-678a-b1a8-60f0-c90406537486 |",
    "|-----  Deployment  --------+------------|",
    "+-----  Stress  ------------+------------+",
    "+---------------------------+------------+",
    "| DCGM Version              | 4.2.3 |",
    "| Memtest                   | Fail - GPU: 1, 2 |",
    "|                           | GPU1: Fail |",
    "| Warning: GPU1             | broken |",
    "| Error                     | GPU 3 has errors |",
    "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong #iters",
    "  8M 4 float sum -1 1.0 2.0 3.0 0 1.0 2.0 N/A 1 20",
    "0:  8 4 float sum -1 1.0 2.0 3e999 0 1.0 2.0 3.0 1",
    "# Avg bus bandwidth : 1.2.3",
    "# Out of bounds values : 7 FAILED",
    "h: Test NCCL failure common.cu:961 'internal error",
    "h:1:1 [0] misc/socket.cc:50 NCCL WARN Call to recv from",
    "[0]:",
    "  rank      : 0 (local_rank: 0)",
    "  exitcode  : -9999999999 (pid: 1)  (SIGKILL)",
    "  traceback : x",
    '{"DCGM Diagnostic": {"test_categories": [{"category": "x", "tests": [',
    '{"name": "memory", "results": [{"gpu_ids": "0,1", "status": "FAIL", "warnings": ["\\ud800"]}]}',
    "\ud800\x00\x1b[1m",
]
texts = st.one_of(
    st.text(st.characters(codec=None)),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=12).map("\n".join),
)

KEYS = ["test_categories", "category", "tests", "name", "results", "status", "gpu_id", "gpu_ids", "entity_id", "info"]
KEYS += [
    "entity_group",
    "warnings",
    "warning",
    "error_id",
    "error_severity",
    "test_summary",
    "runtime_error",
    "version",
]
documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(["Fail", "Skip", "GPU", "0,1"])),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)),
    max_leaves=40,
)

PARSERS: list[tuple[Callable[[str], object], tuple[type[ToolOutputError], ...]]] = [
    (nvidia_smi.cards, (NvidiaSmiError,)),
    (dcgm_discovery.indices, (DcgmError,)),
    (lambda text: of_diagnosis(dcgm_diag.parse(text), {0: "GPU-0"}), (DcgmError,)),
    (lambda text: of_nccl_tests(nccl_tests.parse(text), 1.0), ()),
    (nccl_errors.classify_failure, ()),
    (lambda text: torchrun.parse(text).earliest, ()),
]


@pytest.mark.parametrize(("parse", "declared"), PARSERS)
@given(text=texts)
def test_no_text_crashes_a_parser(
    parse: Callable[[str], object], declared: tuple[type[ToolOutputError], ...], text: str
) -> None:
    with suppress(*declared):
        str(parse(text)).encode()


@given(documents, st.integers(0, 400))
def test_no_document_and_no_cut_crashes_the_parser_of_diagnoses(document: object, end: int) -> None:
    text = json.dumps({"DCGM Diagnostic": document})
    for output in (text, text[:end], f"noise {{ {text} more"):
        with suppress(DcgmError):
            assert of_diagnosis(dcgm_diag.parse(output)).message
