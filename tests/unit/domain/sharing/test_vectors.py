"""What requests and annotations mean, and which devices they get, as recorded of another implementation."""

from itertools import islice
from pathlib import Path

import pytest

from support import vectors
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


def test_a_folder_may_have_lines_of_both_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a line is about decides which check it is for; one that disagrees fails the whole."""
    mixed = tmp_path / "mixed.jsonl"
    found = [(FOLDER / "validate.jsonl"), *sorted((FOLDER.parent / "dra").glob("*.jsonl"))[:1]]
    mixed.write_text("".join(line for path in found for line in _first(path, 3)))
    assert vectors.main(tmp_path) == 0
    assert capsys.readouterr().out == f"{3 * len(found)} passed, 0 failed\n"
    mixed.write_text(mixed.read_text().replace('"ok":false', '"ok":true'))
    assert vectors.main(tmp_path) == 1
    assert "gpu-percent-101\n  ok: expected True, found False" in capsys.readouterr().out


def test_a_line_of_another_form_fails_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = '{"name":"odd","kind":"validate","config":{"op":"request"},"request":{"resources":7},"expect":{}}\n'
    new = '{"name":"new","kind":"validate","config":{"op":"forecast"},"expect":{}}\n'
    (tmp_path / "odd.jsonl").write_text(odd + new + _first(FOLDER / "validate.jsonl", 1)[0])
    assert vectors.main(tmp_path) == 1
    shown = capsys.readouterr().out
    assert "odd\n  AttributeError" in shown
    assert "new\n  no check for ('validate', 'forecast')" in shown
    assert "1 passed, 2 failed" in shown


def test_a_folder_without_lines_proves_nothing(tmp_path: Path) -> None:
    assert vectors.main(tmp_path) == 1


def _first(path: Path, count: int) -> list[str]:
    with path.open() as lines_of:
        return list(islice(lines_of, count))
