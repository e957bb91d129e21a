"""Nothing outside one module orders, counts or compares positions of the log."""

from pathlib import Path

import pytest

from support.paths import ROOT
from support.positions import OTHER_MEANINGS, OWNER, compared_positions

SHIPPED = ("events/gpuledger", "services/gpuledger", "cli/gpuledger", "migrations/gpuledger/db")


def shipped() -> list[Path]:
    """The Python files of the product that people write, without migrations, which never change again."""
    files = sorted(path for root in SHIPPED for path in (ROOT / root).rglob("*.py"))
    return [path for path in files if not path.name.endswith("_pb2.py") and "versions" not in path.parts]


def test_only_one_module_works_with_positions() -> None:
    others = [path for path in shipped() if not str(path.relative_to(ROOT)).startswith((OWNER, *OTHER_MEANINGS))]
    assert [problem for path in others for problem in compared_positions(path)] == []


def test_what_has_another_meaning_is_there_and_would_be_refused() -> None:
    for name in sorted(OTHER_MEANINGS):
        files = [path for path in shipped() if str(path.relative_to(ROOT)).startswith(name)]
        assert any(True for path in files for _ in compared_positions(path)), name


@pytest.mark.parametrize(
    "code",
    [
        "lag = head - checkpoint.position",
        "lag = max(0, await ledger.head() - done)",
        "following = message.sequence + 1",
        "self._position += 1",
        "done = self.checkpoint.position >= decider.settle_until",
        "done = low == message.sequence < high",
        "late = (time, position) < (fact.time, fact.sequence)",
        "is_new = sequence != last_position",
        "begun = min(since, head)",
        "end = max(one.sequence for one in receipts)",
        "rows = sorted(rows, key=lambda row: (row.time, row.position))",
        "anchors = max(anchors, key=attrgetter('sequence'))",
        "heappush(due, (sequence, event_id))",
        "at = one.sequence or head",
        "text = 'empty' if not head else 'full'",
        "if checkpoint.sealed_to: pass",
        "is_late = row['position'] < other['position']",
        "text = f'at {ledger.generation}/{message.sequence}'",
    ],
)
def test_code_that_works_with_a_position_is_refused(tmp_path: Path, code: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"async def work():\n    {code}\n")
    (problem,) = set(compared_positions(file))
    assert problem.split(":")[1] == "2"
    assert OWNER in problem


@pytest.mark.parametrize(
    "code",
    [
        "done = is_at_or_after(checkpoint.position, decider.settle_until)",
        "lag(checkpoint.position, await ledger.head())",
        "is_skipped = message.sequence in skipped",
        "if checkpoint.position is None: pass",
        "rows = sorted(rows, key=lambda row: (row.time, order(row.position)))",
        "text = f'{Position(generation, sequence)} of {source}/{sequence}'",
        "count = events + 1",
    ],
)
def test_code_that_passes_a_position_on_is_accepted(tmp_path: Path, code: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"async def work():\n    {code}\n")
    assert list(compared_positions(file)) == []
