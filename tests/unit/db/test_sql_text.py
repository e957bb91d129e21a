"""Names in SQL: found where PostgreSQL would find them, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.db.sql_text import Relocation, clock_words, first_word, relocated, tokens, without_end

THERE = Relocation(
    ("live", "report"),
    {("live", "device"): 'tmp."device"', ("report", "fleet"): 'tmp."fleet"', ("live", "fleet"): 'tmp."live.fleet"'},
    {"devices_at": 'tmp."devices_at"'},
    "tmp.clock",
)


@given(st.text() | st.text("'\"$/*-e\\ab;\n(."))
def test_the_tokens_of_a_text_are_the_text(text: str) -> None:
    assert "".join(token.source for token in tokens(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM live.device", 'FROM tmp."device"'),
        ('FROM LIVE . "device" d', 'FROM tmp."device" d'),
        ("FROM live /* x */ . -- y\n device", 'FROM tmp."device"'),
        ("SELECT live.device.slot", 'SELECT "device".slot'),
        ("FROM live.fleet WHERE true", 'FROM tmp."live.fleet" AS "fleet" WHERE true'),
        ("FROM live.fleet", 'FROM tmp."live.fleet" AS "fleet"'),
        ("FROM live.fleet AS f", 'FROM tmp."live.fleet" AS f'),
        ("FROM live.fleet f", 'FROM tmp."live.fleet" f'),
        ("FROM report.fleet", 'FROM tmp."fleet"'),
        ("FROM devices_at (x)", 'FROM tmp."devices_at" (x)'),
        ("FROM report.devices_at(now())", 'FROM tmp."devices_at"(tmp.clock())'),
        ("devices_at.x", "devices_at.x"),
        ("report.day", "report.day"),
        ("other.live.device", "other.live.device"),
        ("'live.device'", "'live.device'"),
        (r"E'\' live.device'", r"E'\' live.device'"),
        ("$a$ live.device $a$", "$a$ live.device $a$"),
        ("/* /* */ live.device */", "/* /* */ live.device */"),
        ("-- live.device", "-- live.device"),
        ('"live.device"', '"live.device"'),
        ("FROM live.devicé, live.device\U0001f5a5", "FROM live.devicé, live.device\U0001f5a5"),
        ("FROM live.device$1, live.device_2", "FROM live.device$1, live.device_2"),
        ("$é1$ live.device $é1$ live.device", '$é1$ live.device $é1$ tmp."device"'),
        ("$1$ live.device $1$", '$1$ tmp."device" $1$'),
    ],
)
def test_qualified_names_are_relocated(text: str, expected: str) -> None:
    assert relocated(text, THERE) == expected


def test_the_first_word_and_the_end_of_a_statement() -> None:
    assert first_word(" -- copy\n/* x */ Select 1") == "select"
    assert first_word(" -- nothing") == ""
    assert without_end("SELECT 1 ; -- one\n") == "SELECT 1 "
    assert without_end("SELECT ';'") == "SELECT ';'"


def test_where_a_statement_reads_the_clock() -> None:
    statement = "SELECT NOW (), current_date, now, \"current_time\", 'now', 'x now', clock_timestamp(), now()"
    assert clock_words(statement) == ["now()", "current_date", "'now'", "clock_timestamp()"]
