"""Pods in, pods out: each rule of the injection of preflight checks by a file that a person can read.

GPULEDGER_UPDATE_GOLDEN=1 writes the files anew; read the difference before committing it.
"""

import os
from copy import deepcopy

import pytest
import yaml

from gpuledger.edge.preflight.patch import pod_patch
from support.preflight import GoldenPod, golden_pods, patched


class _WithoutAliases(yaml.SafeDumper):
    """Writes what occurs twice twice, for people."""

    def ignore_aliases(self, data: object) -> bool:
        return True


GOLDEN = list(golden_pods())


@pytest.fixture(params=GOLDEN, ids=[one.name for one in GOLDEN])
def golden(request: pytest.FixtureRequest) -> GoldenPod:
    found: GoldenPod = request.param
    return found


def test_the_pod_is_as_the_file_has_it(golden: GoldenPod) -> None:
    before = deepcopy(golden.pod)
    found = golden.injected()
    assert golden.pod == before, "a decision changes nothing that it is given"
    shown = {"result": found.result, "warnings": list(found.warnings), "pod": found.pod}
    if os.environ.get("GPULEDGER_UPDATE_GOLDEN"):
        golden.expected_file.write_text(yaml.dump(shown, Dumper=_WithoutAliases, sort_keys=False, width=120))
    assert shown == golden.expected


def test_the_patch_makes_the_pod_of_the_file(golden: GoldenPod) -> None:
    assert patched(golden.pod, pod_patch(golden.pod, golden.expected["pod"])) == golden.expected["pod"]


def test_the_second_time_nothing_changes(golden: GoldenPod) -> None:
    once = golden.injected()
    twice = golden.injected(once.pod)
    assert pod_patch(once.pod, twice.pod) == ()
    assert (twice.result, twice.left_out) == (once.result, once.left_out)


def test_every_golden_file_belongs_to_a_case() -> None:
    names = {one.name for one in GOLDEN}
    files = GOLDEN[0].expected_file.parent.glob("*.yaml")
    assert {file.name.partition(".")[0] for file in files} - {"configuration"} == names
