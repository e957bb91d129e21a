"""Statuses agree with what a real allocator decided, for every recorded state, where the recordings are there."""

from collections import Counter

import pytest

from support.dra_statuses import compared
from support.dra_vectors import vectors
from support.paths import ROOT

FOLDER = ROOT.parent / "shared" / "vectors" / "dra"


@pytest.mark.shared
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded verdicts in {FOLDER}")
def test_statuses_agree_with_the_allocator() -> None:
    checked, found = Counter[str](), []
    for vector in vectors(FOLDER):
        for where, decided, facts in compared(vector):
            checked[where.partition(" ")[2] or "pool"] += 1
            if decided != facts:
                found.append(f"{vector['name']}: {where}: the allocator says {decided}, the status {facts}")
    assert found[:5] == []
    assert set(checked) == {"agrees", "allocatable", "free", "pool"}
