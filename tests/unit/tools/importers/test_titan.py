"""Titan's format: which events a row gives, which rows are turned down and why, and which files."""

from pathlib import Path

import pytest

from gpuledger.events.device import DeviceFailed, DeviceInserted, DeviceRemoved
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.source import SourceCompleted
from gpuledger.tools.importers.errors import ImportFileError, ImportFormatError
from support.imports import NOW, TITAN_HEADER, titan, write

GOOD = "s1,c0,2017-01-01 00:00:00,2017-01-02 00:00:00,86400,FALSE,"


async def test_a_life_is_an_insertion_and_a_removal_and_the_last_one_goes_on(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.csv",
        TITAN_HEADER,
        "s1,c0,2017-01-01 00:00:00,2017-01-03 00:00:00,172800,TRUE,DBE",
        "s2,c0,2017-01-03 00:00:00,2017-01-09 00:00:00,518400,FALSE,",
        "s1,c0,,2017-01-02 00:00:00,,,OTB",
    )
    imported = await titan(path)
    assert imported.recorded() == [
        ("01-01 00:00", "slot.declared", "c0"),
        ("01-01 00:00", "device.inserted", "s1"),
        ("01-02 00:00", "device.failed", "s1"),
        ("01-03 00:00", "device.removed", "s1"),
        ("01-03 00:00", "device.failed", "s1"),
        ("01-03 00:00", "device.inserted", "s2"),
        ("01-09 00:00", "source.completed", "/import/titan"),
    ]
    assert [event.data for event in imported.events] == [
        SlotDeclared(node="c0", index=0),
        DeviceInserted(slot="c0", serial="s1"),
        DeviceFailed(kind="OTB", slot="c0"),
        DeviceRemoved(slot="c0", retired=True),
        DeviceFailed(kind="DBE", slot="c0"),
        DeviceInserted(slot="c0", serial="s2"),
        SourceCompleted(events=6, rejects=0),
    ]
    assert [event.number for event in imported.events] == [1, 2, 3, 4, 5, 6, 7]
    assert {(event.source, event.epoch, event.recorded_at, event.imported) for event in imported.events} == {
        ("/import/titan", imported.result.epoch, NOW, True)
    }


@pytest.mark.parametrize(
    ("row", "events"),
    [
        ("s9,c9,2017-06-01 00:00:00,2017-06-02 00:00:00,,FALSE,", ["slot.declared", "device.inserted"]),
        (
            "s9,c9,2017-06-01 00:00:00,2017-06-02 00:00:00,,FALSE,DBE",
            ["slot.declared", "device.inserted", "device.failed"],
        ),
        (
            "s9,c9,2017-06-01 00:00:00,2017-06-02 00:00:00,,TRUE,",
            ["slot.declared", "device.inserted", "device.removed"],
        ),
        (
            "s9,c9,2017-06-02 00:00:00,2017-06-02 00:00:00,,TRUE,",
            ["slot.declared", "device.inserted", "device.removed"],
        ),
        ("s9,c9,,2017-06-02 00:00:00,,,DBE", ["device.failed"]),
        ("s9,c9,,2017-06-02 00:00:00,,FALSE,OTB", ["device.failed"]),
    ],
)
async def test_what_a_row_at_the_end_of_the_data_gives(tmp_path: Path, row: str, events: list[str]) -> None:
    imported = await titan(write(tmp_path / "t.csv", TITAN_HEADER, row))
    assert [kind for _, kind, _ in imported.recorded()] == [*events, "source.completed"]
    assert imported.recorded()[-1][0] == "06-02 00:00"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("s1,c0,2017-01-01 00:00:00", "the row has 3 columns, the header 7"),
        (GOOD + ",", "the row has 8 columns, the header 7"),
        (GOOD.replace("s1", ""), "SN is empty"),
        (GOOD.replace("s1", "  "), "SN is empty"),
        (GOOD.replace("c0", ""), "location is empty"),
        (GOOD.replace("s1", "s" * 254), "SN has 254 characters; 253 is the limit"),
        (GOOD.replace("c0", "€" * 253), "location does not fit into a subject: it is too long when escaped"),
        (
            GOOD.replace("2017-01-01 00:00:00", "yesterday"),
            "insert is not a time like 2017-04-09 21:36:19: 'yesterday'",
        ),
        (
            GOOD.replace("2017-01-01 00:00:00", "2017-02-30 00:00:00"),
            "insert is not a time: day is out of range for month",
        ),
        (
            GOOD.replace("2017-01-02 00:00:00", "2017-01-02T00:00:00"),
            "remove is not a time like 2017-04-09 21:36:19: '2017-01-02T00:00:00'",
        ),
        (
            GOOD.replace("2017-01-02 00:00:00", "2017-01-02 24:00:00"),
            "remove is not a time like 2017-04-09 21:36:19: '2017-01-02 24:00:00'",
        ),
        (
            GOOD.replace("2017-01-01 00:00:00", "0001-01-01 00:00:00"),
            "insert is before the calendar's second day: '0001-01-01 00:00:00'",
        ),
        (GOOD.replace("2017-01-02 00:00:00", ""), "remove is empty"),
        (GOOD.replace("2017-01-02", "2016-12-31"), "end before start: remove is before insert"),
        (GOOD + "XID", "the event 'XID' is unknown; known are DBE and OTB"),
        (GOOD + "dbe", "the event 'dbe' is unknown; known are DBE and OTB"),
        (GOOD.replace("FALSE", "false"), "out is neither TRUE nor FALSE: 'false'"),
        (GOOD.replace("FALSE", ""), "out is neither TRUE nor FALSE: ''"),
        ("s1,c0,,2017-01-02 00:00:00,,,", "the row has neither an insert time nor an event"),
        ('"s1,c0,2017-01-01 00:00:00,2017-01-02 00:00:00,86400,FALSE,', "a quote is not closed"),
        (GOOD.replace("s1", '"s"1'), "the row cannot be split: ',' expected after '\"'"),
        (GOOD.replace("s1", "s\0"), "the line holds a NUL character"),
    ],
)
async def test_a_bad_row_is_reported_with_its_line_and_reason_and_the_rest_is_imported(
    tmp_path: Path, row: str, reason: str
) -> None:
    path = write(tmp_path / "t.csv", TITAN_HEADER, GOOD, row, GOOD.replace("c0", "c1"))
    imported = await titan(path)
    assert imported.reasons() == [(3, reason)]
    [reject] = imported.rejects
    assert (reject.file, reject.text) == (str(path), row)
    assert imported.result.rejects == 1
    assert imported.result.first_rejects == (reject,)
    assert [kind for _, kind, _ in imported.recorded()].count("device.inserted") == 2
    assert imported.events[-1].data == SourceCompleted(events=4, rejects=1)


async def test_bytes_that_are_no_text_are_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(f"{TITAN_HEADER}\n".encode() + b"s\xff" + f"{GOOD[2:]}\n{GOOD}\n".encode())
    imported = await titan(path)
    assert imported.reasons() == [(2, "byte 2 of the line is not UTF-8")]
    assert imported.rejects[0].text.startswith("s\\xff,c0")
    assert imported.result.events == 3


async def test_a_line_without_an_end_is_a_bad_row_and_is_not_kept_in_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", TITAN_HEADER, "x" * 3_000_000, GOOD)
    imported = await titan(path)
    assert imported.reasons() == [(2, "the line has more than 524288 bytes")]
    assert len(imported.rejects[0].text) < 5_000
    assert imported.result.events == 3


async def test_a_quoted_field_may_hold_a_line_end_and_a_row_has_the_line_it_begins_in(tmp_path: Path) -> None:
    quoted = GOOD.replace("s1", '"s,\n""1"""')
    path = write(tmp_path / "t.csv", TITAN_HEADER, quoted, GOOD.replace("c0", ""), '"open', GOOD, "\N{SNOWMAN}")
    imported = await titan(path)
    assert imported.reasons() == [
        (4, "location is empty"),
        (5, "a quote is not closed"),
        (7, "the row has 1 columns, the header 7"),
    ]
    assert {event.subject for event in imported.events} == {'s,\n"1"', "s1", "c0", "/import/titan"}


async def test_windows_line_ends_a_byte_order_mark_blank_lines_and_other_columns_are_taken(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.csv",
        "\N{ZERO WIDTH NO-BREAK SPACE}event,extra,SN,location,insert,remove,duration,out",
        "",
        "DBE,7,s1,c0,2017-01-01 00:00:00,2017-01-02 00:00:00,n/a,FALSE",
        "   ",
        end="\r\n",
    )
    imported = await titan(path)
    assert imported.reasons() == []
    assert [kind for _, kind, _ in imported.recorded()] == [
        "slot.declared",
        "device.inserted",
        "device.failed",
        "source.completed",
    ]


async def test_equal_rows_are_equal_facts_and_count_twice(tmp_path: Path) -> None:
    row = "s1,c0,,2017-01-02 00:00:00,,,DBE"
    imported = await titan(write(tmp_path / "t.csv", TITAN_HEADER, row, row))
    assert imported.result.events == 3
    assert len({event.id for event in imported.events}) == 3


async def test_a_file_without_a_good_row_records_nothing(tmp_path: Path) -> None:
    imported = await titan(write(tmp_path / "t.csv", TITAN_HEADER, "nonsense"))
    assert imported.events == []
    assert imported.result.end is None
    assert imported.result.rejects == 1


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], "The file is empty."),
        ([GOOD], "SN, location, insert, remove, duration, out, event missing in line 1, 's1,c0,"),
        ([TITAN_HEADER.replace("insert", "Insert")], "insert missing in line 1"),
        ([TITAN_HEADER + ",SN"], "SN more than once in line 1."),
        (['"SN', GOOD], "In line 1 a quote is not closed."),
    ],
)
async def test_a_file_in_another_format_is_an_error_that_names_the_expected_one(
    tmp_path: Path, lines: list[str], found: str
) -> None:
    with pytest.raises(ImportFormatError, match="is not a file in Titan's format, whose header is") as caught:
        await titan(write(tmp_path / "t.csv", *lines))
    assert found in str(caught.value)


async def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match="No such file or directory"):
        await titan(tmp_path / "missing.csv")
    with pytest.raises(ImportFileError, match="is not a regular file"):
        await titan(tmp_path)
