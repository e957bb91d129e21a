"""Which devices requests get, scores, partitions and accounts of nodes, as recorded of another implementation."""

import pytest

from support.paths import ROOT
from support.sharing_vectors import differences, lines, op_of
from support.vectors import SHARING

FOLDER = ROOT.parent / "shared" / "vectors" / "sharing"
LINES = list(lines(FOLDER)) if FOLDER.is_dir() else []
LINES_MIN = 129

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded outcomes in {FOLDER}"),
]


@pytest.mark.parametrize("kind", ["allocate", "joint", "normalize", "partition", "score", "validate"])
def test_nodes_do_what_is_recorded(kind: str) -> None:
    found = {line["name"]: differences(line, SHARING) for line in LINES if op_of(line)[0] == kind}
    assert {name: one for name, one in found.items() if one} == {}
    assert found


def test_no_line_is_left_out() -> None:
    assert [line["name"] for line in LINES if op_of(line) not in SHARING] == []
    assert len(LINES) >= LINES_MIN
