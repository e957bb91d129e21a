"""What holds for any file: the order of its rows does not matter, and sorting in runs is sorting."""

import asyncio
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.events.device import DeviceFailed
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.tools.importers.draft import Draft
from gpuledger.tools.importers.sorting import Sorter
from support.imports import TITAN_HEADER, Imported, recorded, titan, write

DAY = datetime(2017, 1, 1, tzinfo=UTC)

days = st.integers(1, 6).map(lambda day: f"2017-01-{day:02} 00:00:00")
rows = st.tuples(
    st.sampled_from(["s1", "s2", "s3", ""]),
    st.sampled_from(["c0", "c1"]),
    st.one_of(st.just(""), days),
    days,
    st.just(""),
    st.sampled_from(["TRUE", "FALSE"]),
    st.sampled_from(["", "DBE", "OTB", "XID"]),
).map(",".join)
drafts = st.builds(
    Draft,
    time=st.integers(0, 3).map(lambda hours: DAY + timedelta(hours=hours, microseconds=hours)),
    rank=st.integers(0, 2),
    line=st.integers(1, 50),
    kind=st.sampled_from(["a", "b", "é"]),
    subject=st.just("g"),
    data=st.just(DeviceFailed(kind="DBE")),
)


def _imported(lines: list[str], ledger: MemoryLedger | None = None) -> Imported:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(titan(write(Path(folder) / "t.csv", TITAN_HEADER, *lines), ledger))


def _facts(imported: Imported) -> Counter[tuple[datetime, str, str, str]]:
    return Counter((event.time, event.type, event.subject, event.data.model_dump_json()) for event in imported.events)


@given(st.lists(rows, max_size=12), st.randoms(use_true_random=False))
def test_any_order_of_rows_gives_the_same_facts_in_the_order_of_time(lines: list[str], random: Random) -> None:
    shuffled = random.sample(lines, len(lines))
    one, other = _imported(lines), _imported(shuffled)
    assert _facts(one) == _facts(other)
    for imported in (one, other):
        times = [event.time for event in imported.events]
        assert times == sorted(times)
    assert [event.type for event in one.events] == [event.type for event in other.events]


@given(st.lists(rows, min_size=1, max_size=12))
def test_every_row_is_imported_or_rejected_and_a_removal_never_stands_before_its_insertion(lines: list[str]) -> None:
    imported = _imported(lines)
    rejected = {reject.line for reject in imported.rejects}
    assert len(rejected) == len(imported.rejects)
    good = [line for number, line in enumerate(lines, 2) if number not in rejected]
    assert len([event for event in imported.events if event.data.EVENT == "inserted"]) == sum(
        line.split(",")[2] != "" for line in good
    )
    balance: Counter[str] = Counter()
    for event in imported.events:
        balance[event.subject] += {"inserted": 1, "removed": -1}.get(event.data.EVENT, 0)
        assert balance[event.subject] >= 0


@given(st.lists(rows, min_size=1, max_size=8), st.integers(0, 30))
def test_going_on_after_any_number_of_events_gives_the_same_log(lines: list[str], after: int) -> None:
    ledger, resumed = MemoryLedger(), MemoryLedger()
    whole = _imported(lines, ledger)
    resumed._messages.extend(ledger._messages[:after])
    again = _imported(lines, resumed)
    assert again.events == whole.events == asyncio.run(recorded(ledger))
    assert again.result.already_recorded == min(after, len(whole.events))


@given(
    st.lists(drafts, max_size=40, unique_by=lambda draft: (draft.line, draft.kind)),
    st.integers(1, 7),
    st.integers(2, 4),
)
def test_sorting_in_runs_is_sorting(unsorted: list[Draft], run_drafts_max: int, runs_max: int) -> None:
    with Sorter(run_drafts_max=run_drafts_max, runs_max=runs_max) as sorter:
        for draft in unsorted:
            sorter.add(draft)
        assert sorter.count == len(unsorted)
        assert list(sorter.merged()) == sorted(unsorted, key=lambda draft: draft[:4])
