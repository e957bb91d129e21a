"""Availability as a real allocator decides it, for every recorded state, where the recordings are there."""

import pytest

from support.dra_vectors import differences, vectors
from support.paths import ROOT

FOLDER = ROOT.parent / "shared" / "vectors" / "dra"


@pytest.mark.shared
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded verdicts in {FOLDER}")
def test_every_recorded_verdict_agrees() -> None:
    checked, found = 0, []
    for vector in vectors(FOLDER):
        checked += 1
        found += [f"{vector['name']}: {one}" for one in differences(vector)]
    assert found[:5] == []
    assert checked > 0
