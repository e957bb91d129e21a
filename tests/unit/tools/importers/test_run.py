"""Importing as a whole: going on where it was cut off, adding nothing twice, rejects, progress and temporary files."""

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from gpuledger.events.envelope import decode
from gpuledger.ledger.api import Expected, Outgoing, Receipt
from gpuledger.ledger.errors import PublishError
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.tools.importers import run
from gpuledger.tools.importers.draft import Draft, Reject
from gpuledger.tools.importers.errors import ImportFileError
from gpuledger.tools.importers.rejects import reject_file
from gpuledger.tools.importers.run import import_titan
from gpuledger.tools.importers.sample import write_titan_sample
from gpuledger.tools.importers.sorting import Sorter
from gpuledger.tools.importers.titan import TitanReading
from support.imports import NOW, TITAN_HEADER, recorded, titan, write


class ForgetfulLedger(MemoryLedger):
    """A log whose window for repeats is always over, and that fails behind `room` messages."""

    room = 1_000_000

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        receipts = []
        for message in messages:
            if self.room == 0:
                raise PublishError("The server is gone.")
            self.room -= 1
            self._sequences.clear()
            receipts.append(self._append(message))
        return receipts


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "sample.csv"
    with path.open("w", newline="") as file:
        write_titan_sample(file, seed=5, devices=60)
    return path


async def test_importing_twice_adds_nothing_even_when_the_broker_forgot(sample: Path) -> None:
    ledger = ForgetfulLedger()
    first = await titan(sample, ledger)
    second = await titan(sample, ledger, NOW + timedelta(days=400))
    assert second.events == first.events
    assert first.result.published == first.result.events == len(first.events)
    assert (second.result.published, second.result.already_recorded) == (0, first.result.events)
    assert second.result.end == first.result.end


@pytest.mark.parametrize("after", [0, 1, 50, 100])
async def test_an_import_that_was_cut_off_leaves_a_prefix_and_goes_on_from_there(sample: Path, after: int) -> None:
    whole, ledger = await titan(sample), ForgetfulLedger()
    ledger.room = after
    with pytest.raises(PublishError):
        await titan(sample, ledger)
    assert await recorded(ledger) == whole.events[:after]
    ledger.room = 1_000_000
    rest = await titan(sample, ledger)
    assert rest.events == whole.events
    assert (rest.result.published, rest.result.already_recorded) == (len(whole.events) - after, after)


async def test_holes_are_filled_and_nothing_else_is_added(sample: Path) -> None:
    whole, ledger = await titan(sample), ForgetfulLedger()
    await ledger.publish_many([run._outgoing(event) for event in whole.events if event.number % 3])
    await titan(sample, ledger)
    numbers = [event.number for event in await recorded(ledger)]
    holes = [number for number in range(1, len(whole.events) + 1) if number % 3 == 0]
    assert numbers[-len(holes) :] == holes
    assert sorted(numbers) == list(range(1, len(whole.events) + 1))


async def test_imports_of_other_files_and_broken_events_do_not_disturb(sample: Path, tmp_path: Path) -> None:
    ledger, epoch = MemoryLedger(), (await titan(sample)).result.epoch
    other = write(tmp_path / "o.csv", TITAN_HEADER, "s1,c0,,2017-01-02 00:00:00,,,DBE")
    await titan(other, ledger)
    broken = ("{", "[]", "[%s]", '{"source":"/import/titan","sourceseq":"x","sourceepoch":"%s"}', '{"id":"%s"}')
    for number, text in enumerate(broken):
        raw = text.replace("%s", epoch).encode()
        await ledger.publish(Outgoing("ledger.svc.import.device.x.failed", str(number), raw))
    result = await import_titan(ledger, sample, now=NOW, rejects=print)
    assert result.published == result.events


async def test_numbers_follow_the_time_and_subjects_the_grammar(sample: Path) -> None:
    ledger = MemoryLedger()
    imported = await titan(sample, ledger)
    times = [event.time for event in imported.events]
    assert times == sorted(times)
    assert [event.number for event in imported.events] == list(range(1, len(times) + 1))
    messages = [message async for batch in ledger.history(subject_filter=run.IMPORTS) for message in batch]
    assert [decode(message.data) for message in messages] == imported.events


async def test_rejects_are_written_a_line_each_and_all_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", TITAN_HEADER, *(f"bad{number}" for number in range(25)))
    target = tmp_path / "rejects.jsonl"
    with reject_file(target) as rejects:
        result = await import_titan(MemoryLedger(), path, now=NOW, rejects=rejects)
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert len(lines) == result.rejects == 25
    assert [reject.line for reject in result.first_rejects] == list(range(2, 12))
    assert lines[24] == {
        "file": str(path),
        "line": 26,
        "reason": "the row has 1 columns, the header 7",
        "text": "bad24",
    }


def test_a_reject_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match="The rejects cannot be written to"), reject_file(tmp_path):
        pass


async def test_progress_is_reported_while_reading_and_while_recording(
    sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "ROWS_PER_TURN", 50)
    monkeypatch.setattr(run, "EVENTS_PER_PUBLISH", 40)
    reports: list[tuple[int, int | None]] = []
    rejects: list[Reject] = []
    ledger = MemoryLedger()
    result = await import_titan(
        ledger, sample, now=NOW, rejects=rejects.append, on_progress=lambda done, total: reports.append((done, total))
    )
    assert reports[:2] == [(50, None), (100, None)]
    recording = [pair for pair in reports if pair[1] is not None]
    assert recording[0] == (40, result.events)
    assert recording[-1] == (result.events, result.events)


def test_a_file_that_changes_while_it_is_read_is_an_error(sample: Path) -> None:
    rows = TitanReading(sample).read()
    assert next(read for read in rows if read), "the first time through gives nothing"
    with sample.open("a") as file:
        file.write("s1,c0,,2017-01-02 00:00:00,,,DBE\n" * 10)
    with pytest.raises(ImportFileError, match="changed while it was read; nothing was imported"):
        list(rows)


def test_sorting_leaves_nothing_behind_and_names_the_full_disk(tmp_path: Path) -> None:
    draft = next(draft for read in _drafts(tmp_path) for draft in read)
    no_room = pytest.raises(ImportFileError, match=r"The temporary folder .*sort cannot be written: No such file")
    with Sorter(tmp_path / "sort", run_drafts_max=1) as sorter, no_room:
        sorter.add(draft)
    (tmp_path / "sort").mkdir()
    with Sorter(tmp_path / "sort", run_drafts_max=1, runs_max=2) as sorter:
        for line in range(9, 0, -1):
            sorter.add(draft._replace(line=line))
        assert list((tmp_path / "sort").iterdir()) == []
        assert [draft.line for draft in sorter.merged()] == list(range(1, 10))
    assert list((tmp_path / "sort").iterdir()) == []


def _drafts(folder: Path) -> list[list[Draft]]:
    path = write(folder / "one.csv", TITAN_HEADER, "s1,c0,,2017-01-02 00:00:00,,,DBE")
    return [list(read) for read in TitanReading(path).read() if not isinstance(read, Reject)]
