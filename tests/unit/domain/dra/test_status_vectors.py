"""Statuses agree with what a real allocator decided, for one recorded state in four, or for all."""

from collections import Counter

import pytest

from support.dra_statuses import compared
from support.dra_vectors import vectors
from support.paths import ROOT

FOLDER = ROOT.parent / "shared" / "vectors" / "dra"


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.shared
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded verdicts in {FOLDER}")
def test_statuses_agree_with_the_allocator(every: int) -> None:
    checked, found = Counter[str](), []
    for vector in vectors(FOLDER, every):
        for where, decided, facts in compared(vector):
            checked[where.partition(" ")[2] or "pool"] += 1
            if decided != facts:
                found.append(f"{vector['name']}: {where}: the allocator says {decided}, the status {facts}")
    assert found[:5] == []
    assert set(checked) == {"agrees", "allocatable", "free", "pool"}
