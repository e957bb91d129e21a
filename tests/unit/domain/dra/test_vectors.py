"""Availability as a real allocator decides it, for one recorded state in four or for all, where they are there."""

import pytest

from support.dra_vectors import differences, vectors
from support.paths import ROOT

FOLDER = ROOT.parent / "shared" / "vectors" / "dra"


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.shared
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded verdicts in {FOLDER}")
def test_recorded_verdicts_agree(every: int) -> None:
    checked, found = 0, []
    for vector in vectors(FOLDER, every):
        checked += 1
        found += [f"{vector['name']}: {one}" for one in differences(vector)]
    assert found[:5] == []
    assert checked > 0
