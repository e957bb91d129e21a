"""What requests and annotations mean, and which devices they get, as recorded of another implementation."""

import pytest

from support.paths import ROOT
from support.sharing_vectors import OF_REQUESTS, differences, lines, op_of

FOLDER = ROOT.parent / "shared" / "vectors" / "sharing"
OF_REQUESTS_MIN = 42

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded outcomes in {FOLDER}"),
]


def test_requests_and_annotations_mean_what_is_recorded() -> None:
    of_requests = [line for line in lines(FOLDER) if op_of(line) in OF_REQUESTS]
    found = {line["name"]: differences(line, OF_REQUESTS) for line in of_requests}
    assert {name: one for name, one in found.items() if one} == {}
    assert len(found) >= OF_REQUESTS_MIN
