"""Output for people and scripts: every format, empty results, hostile text, closed pipes and bars."""

import csv
import io
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
import yaml

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render import Column, Console, Output, View, columns_of, message, progress, render
from gpuledger.cli.render.values import cell, csv_field, json_text, yaml_item

Row = Mapping[str, object]

DEVICES = View(
    "device",
    (
        Column("device"),
        Column("state"),
        Column("gpu-years", right=True, format=lambda value: f"{value:.3f}"),
        Column("since", wide=True),
    ),
    name_key="device",
)
ROWS: list[Row] = [
    {
        "device": "GPU-1",
        "state": "in-service",
        "gpu_years": Decimal("12.5"),
        "since": datetime(2017, 2, 7, tzinfo=UTC),
        "slot": "c0-0c0s0n0",
    },
    {"device": "GPU-22", "state": None, "gpu_years": Decimal(3), "since": None, "slot": None},
]


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def console(
    out: io.StringIO | None = None, err: io.StringIO | None = None, environ: Mapping[str, str] | None = None
) -> Console:
    return Console.of(out or io.StringIO(), err or io.StringIO(), environ or {})


def shown(rows: list[Row], output: Output, view: View = DEVICES, *, headers: bool = True) -> str:
    out, err = io.StringIO(), io.StringIO()
    render(rows, view, output, headers=headers, console=console(out, err))
    assert bool(err.getvalue()) == (not rows)
    return out.getvalue()


def test_a_table_has_capitals_padding_and_no_borders() -> None:
    assert shown(ROWS, Output.TABLE) == (
        "DEVICE   STATE        GPU-YEARS\n"
        "GPU-1    in-service      12.500\n"
        "GPU-22   <none>           3.000\n"
    )  # fmt: skip


def test_wide_adds_columns() -> None:
    assert shown(ROWS, Output.WIDE) == (
        "DEVICE   STATE        GPU-YEARS   SINCE\n"
        "GPU-1    in-service      12.500   2017-02-07T00:00:00Z\n"
        "GPU-22   <none>           3.000   <none>\n"
    )


def test_without_headers_only_the_rows_count_for_the_widths() -> None:
    assert shown(ROWS, Output.TABLE, headers=False) == ("GPU-1    in-service   12.500\nGPU-22   <none>        3.000\n")


def test_a_view_without_columns_shows_all_keys_and_numbers_to_the_right() -> None:
    rows: list[Row] = [
        {"kind_of": "DBE", "count": 4826, "known": True},
        {"kind_of": "O", "count": 7, "known": None},
    ]
    assert shown(rows, Output.TABLE, View("row")) == (
        "KIND-OF   COUNT   KNOWN\n"
        "DBE        4826   true\n"
        "O             7   <none>\n"
    )  # fmt: skip


def test_wide_characters_keep_columns_straight() -> None:
    rows: list[Row] = [{"owner": "日本", "n": "x"}, {"owner": "abcde", "n": "y"}]
    assert shown(rows, Output.TABLE, View("row")) == "OWNER   N\n日本    x\nabcde   y\n"


def test_long_lines_are_neither_wrapped_nor_cut() -> None:
    rows: list[Row] = [{"text": "x" * 1000}]
    assert shown(rows, Output.TABLE, View("row"), headers=False) == "x" * 1000 + "\n"


def test_json_is_an_array_of_all_keys() -> None:
    text = shown(ROWS, Output.JSON)
    assert text.startswith('[\n  {\n    "device": "GPU-1",\n    "state": "in-service",\n')
    assert text.endswith('    "slot": null\n  }\n]\n')
    assert json.loads(text)[0] == {
        "device": "GPU-1",
        "state": "in-service",
        "gpu_years": 12.5,
        "since": "2017-02-07T00:00:00Z",
        "slot": "c0-0c0s0n0",
    }


def test_json_is_laid_out_as_the_standard_library_does() -> None:
    rows: list[Row] = [{"a": [1, "x\ny"], "b": {"c": {}}}, {"d": 1.5}]
    assert shown(rows, Output.JSON) == json.dumps(rows, indent=2) + "\n"


def test_jsonl_is_one_object_a_line() -> None:
    lines = shown(ROWS, Output.JSONL).splitlines()
    assert lines[1] == '{"device":"GPU-22","state":null,"gpu_years":3,"since":null,"slot":null}'
    assert [json.loads(line)["device"] for line in lines] == ["GPU-1", "GPU-22"]


def test_yaml_is_a_list_in_the_rows_order() -> None:
    text = shown(ROWS, Output.YAML)
    assert text.startswith("- device: GPU-1\n  state: in-service\n  gpu_years: 12.5\n")
    assert yaml.safe_load(text) == json.loads(shown(ROWS, Output.JSON))


def test_names_are_kind_and_name() -> None:
    assert shown(ROWS, Output.NAME) == "device/GPU-1\ndevice/GPU-22\n"


def test_names_are_refused_where_rows_have_none() -> None:
    with pytest.raises(CliError, match="These rows have no names") as caught:
        render(ROWS, View("report"), Output.NAME, console=console())
    assert caught.value.code is ExitCode.USAGE


def test_csv_has_all_keys_of_the_first_row() -> None:
    assert shown(ROWS, Output.CSV) == (
        "device,state,gpu_years,since,slot\nGPU-1,in-service,12.5,2017-02-07T00:00:00Z,c0-0c0s0n0\nGPU-22,,3,,\n"
    )
    assert shown(ROWS, Output.CSV, headers=False).startswith("GPU-1,")


def test_csv_quotes_so_that_it_reads_back() -> None:
    row: Row = {"a": 'say "x"', "b": "1,2", "c": "two\nlines", "d": ["p", "q"], "e": {"k": [1]}}
    read = list(csv.reader(io.StringIO(shown([row], Output.CSV), newline="")))
    assert read == [["a", "b", "c", "d", "e"], ['say "x"', "1,2", "two\nlines", '["p","q"]', '{"k":[1]}']]


def test_csv_rows_with_other_keys_stay_in_their_columns() -> None:
    assert shown([{"a": 1, "b": 2}, {"b": 3, "c": 4}], Output.CSV) == "a,b\n1,2\n,3\n"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (Output.TABLE, ""),
        (Output.WIDE, ""),
        (Output.JSON, "[]\n"),
        (Output.JSONL, ""),
        (Output.YAML, "[]\n"),
        (Output.NAME, ""),
        (Output.CSV, "device,state,gpu_years,since\n"),
    ],
)
def test_no_rows_are_reported_on_stderr(output: Output, text: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    render([], DEVICES, output, console=console(out, err))
    assert out.getvalue() == text
    assert err.getvalue() == "No devices found.\n"


def test_no_rows_and_no_headers_leave_csv_empty() -> None:
    assert shown([], Output.CSV, headers=False) == ""
    assert shown([], Output.CSV, View("row")) == ""


@pytest.mark.parametrize(
    ("view", "kinds"),
    [
        (View("failure"), "failures"),
        (View("contradiction"), "contradictions"),
        (View("class"), "classes"),
        (View("batch"), "batches"),
        (View("history"), "histories"),
        (View("day"), "days"),
        (View("index", plural="indices"), "indices"),
    ],
)
def test_kinds_are_pluralised(view: View, kinds: str) -> None:
    assert view.kinds == kinds


@pytest.mark.parametrize(
    ("value", "table", "field", "text"),
    [
        (None, "<none>", "", "null"),
        ("", "<none>", "", '""'),
        ([], "<none>", "[]", "[]"),
        ({}, "<none>", "{}", "{}"),
        (True, "true", "true", "true"),
        (False, "false", "false", "false"),
        (0, "0", "0", "0"),
        (-7, "-7", "-7", "-7"),
        (2**70, str(2**70), str(2**70), str(2**70)),
        (1.0, "1", "1.0", "1.0"),
        (1.5, "1.5", "1.5", "1.5"),
        (100.0, "100", "100.0", "100.0"),
        (1.23456, "1.23", "1.23456", "1.23456"),
        (-0.001, "0", "-0.001", "-0.001"),
        (float("nan"), "nan", "nan", "null"),
        (Decimal("1.50"), "1.5", "1.50", "1.50"),
        (Decimal("1E+3"), "1000", "1000", "1000"),
        (Decimal("1E-9"), "0", "0.000000001", "0.000000001"),
        (Decimal("NaN"), "NaN", "NaN", "null"),
        (datetime(2017, 2, 7, tzinfo=timezone(timedelta(hours=1))), *["2017-02-06T23:00:00Z"] * 2, None),
        (datetime(2017, 2, 7, 0, 0, 0, 5, tzinfo=UTC), *["2017-02-07T00:00:00.000005Z"] * 2, None),
        (date(2017, 2, 7), "2017-02-07", "2017-02-07", None),
        (uuid.UUID(int=1), *["00000000-0000-0000-0000-000000000001"] * 2, None),
        (Output.YAML, "yaml", "yaml", None),
        (ExitCode.BUSY, "5", "5", "5"),
        (["a", 1.5, None], "a,1.5,<none>", *['["a",1.5,null]'] * 2),
        (("a", True), "a,true", *['["a",true]'] * 2),
        ([{"a": [1]}, "b,c"], "a=1,b,c", *['[{"a":[1]},"b,c"]'] * 2),
        ({"b": 1, "a": "x"}, "a=x b=1", '{"b":1,"a":"x"}', '{"b":1,"a":"x"}'),
        ("[2017-01-01,2018-01-01)", *["[2017-01-01,2018-01-01)"] * 2, None),
    ],
)
def test_a_value_in_every_format(value: object, table: str, field: str, text: str | None) -> None:
    assert cell(value, Column("value")) == table
    assert csv_field(value) == field
    assert json_text(value) == (f'"{table}"' if text is None else text)


@pytest.mark.parametrize("value", [2**70, Decimal("1.50"), Decimal("1E+3"), Decimal("1E-9"), 1.5, None, True])
def test_yaml_and_json_mean_the_same(value: object) -> None:
    assert yaml.safe_load(yaml_item({"v": value})) == [{"v": json.loads(json_text(value))}]


def test_yaml_needs_neither_anchors_nor_folds() -> None:
    labels = ["x " * 100]
    assert yaml_item({"a": labels, "b": labels}).count("x x") == 100
    assert yaml_item({"n": Decimal("NaN"), "o": Output.CSV}) == "- n: .nan\n  o: csv\n"


def test_a_format_never_gets_none() -> None:
    assert cell(None, Column("n", format=lambda value: 1 / 0)) == "<none>"  # type: ignore[arg-type,return-value]


HOSTILE = "a\x1b[2J\n\x07\x9b31m\u202eb\udc80"


@pytest.mark.parametrize("output", [Output.TABLE, Output.WIDE, Output.NAME, Output.JSON, Output.JSONL])
def test_hostile_text_reaches_no_terminal_raw(output: Output) -> None:
    row: Row = {"device": HOSTILE, HOSTILE: {HOSTILE: [HOSTILE]}}
    text = shown([row], output, View("device", name_key="device"))
    assert text.replace("\n", "").isprintable()
    assert r"\u202e" in text


def test_hostile_text_is_spelt_out() -> None:
    assert cell(HOSTILE, Column("x")) == r"a\x1b[2J\n\x07\x9b31m\u202eb\udc80"
    assert cell(1, Column("x", format=lambda _: "\x1b")) == r"\x1b"
    assert json.loads(json_text("\x1b\x9b\u202e")) == "\x1b\x9b\u202e"


def test_csv_is_exact_in_a_file_and_safe_on_a_terminal() -> None:
    terminal = Terminal()
    render([{"a": "x\x1b"}], DEVICES, Output.CSV, console=console(terminal))
    assert shown([{"a": "x\x1b"}], Output.CSV) == "a\nx\x1b\n"
    assert terminal.getvalue() == "a\nx\\x1b\n"


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_state_words_have_colour_on_a_terminal_alone(environ: dict[str, str], coloured: bool) -> None:
    out = Terminal()
    render(ROWS, DEVICES, Output.TABLE, console=console(out, environ=environ))
    assert ("\x1b[32min-service\x1b[0m   " in out.getvalue()) == coloured
    plain = out.getvalue().replace("\x1b[32m", "").replace("\x1b[0m", "")
    assert plain == shown(ROWS, Output.TABLE)


@pytest.mark.parametrize("output", [Output.JSON, Output.JSONL, Output.YAML, Output.NAME, Output.CSV])
def test_rows_are_written_as_they_come(output: Output) -> None:
    out = io.StringIO()
    held_chars: list[int] = []

    def rows() -> Iterator[Row]:
        for n in range(5):
            held_chars.append(len(out.getvalue()))
            yield {"device": f"GPU-{n}"}

    render(rows(), DEVICES, output, live=True, console=console(out))
    assert held_chars[-1] > held_chars[2] > 0


@pytest.mark.parametrize("output", list(Output))
def test_a_reader_that_leaves_ends_it_quietly(output: Output) -> None:
    script = (
        "from gpuledger.cli.render import Output, View, ending_with_reader, render\n"
        "rows = ({'device': f'GPU-{n}' * 20} for n in range(20_000))\n"
        "with ending_with_reader():\n"
        f"    render(rows, View('device', name_key='device'), Output('{output}'))\n"
    )
    assert read_a_little("-c", script) == (ExitCode.PIPE, b"")


MAIN = "import sys; from gpuledger.cli.main import main; sys.argv[0] = 'gpuledger'; main()"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["get", "--help"], ["version"], ["permissions", "--help"], ["nats-config", "--help"]]
)
def test_every_command_ends_quietly_when_its_reader_has_left(arguments: list[str]) -> None:
    assert read_a_little("-c", MAIN, *arguments, chars=0) == (ExitCode.PIPE, b"")


def read_a_little(*arguments: str, chars: int = 10) -> tuple[int, bytes]:
    """Run Python, and leave after so many characters of its output; returns its exit code and its stderr."""
    read, write = os.pipe()
    if not chars:
        os.close(read)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, *arguments], stdout=write, stderr=subprocess.PIPE, env=environ) as process:
        os.close(write)
        if chars:
            os.read(read, chars)
            os.close(read)
        _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


def test_a_message_is_a_line_on_stderr() -> None:
    out, err = io.StringIO(), io.StringIO()
    message("Imported \x1b[2J.", console(out, err))
    assert (out.getvalue(), err.getvalue()) == ("", "Imported \\x1b[2J.\n")


def test_a_message_finds_the_process_streams(capsys: pytest.CaptureFixture[str]) -> None:
    message("Done.")
    render([{"device": "GPU-1"}], DEVICES, Output.NAME)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("device/GPU-1\n", "Done.\n")


@pytest.mark.parametrize(("err", "environ"), [(io.StringIO(), {}), (Terminal(), {"TERM": "dumb"})])
def test_off_a_terminal_there_is_no_bar(err: io.StringIO, environ: dict[str, str]) -> None:
    out = io.StringIO()
    with progress("Importing", total=10, console=console(out, err, environ)) as advance:
        advance(5)
        advance.to(10)
    assert (out.getvalue(), err.getvalue()) == ("", "")


def test_on_a_terminal_the_bar_counts_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    out, err = io.StringIO(), Terminal()
    stdout = sys.stdout
    with progress("Import [/x] \x07", total=4000, unit="events", console=console(out, err)) as advance:
        advance()
        advance(999)
        advance.to(4000)
        assert sys.stdout is stdout
    assert out.getvalue() == ""
    assert "Import [/x] \\x07" in err.getvalue()
    assert "4,000/4,000 events" in err.getvalue()
    assert "events/s" in err.getvalue()


def test_a_bar_without_a_total_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    err = Terminal()
    with progress("Reading", console=console(err=err)) as advance:
        advance(7)
    assert "7" in err.getvalue()


def test_columns_of_keys_name_them() -> None:
    assert [(column.heading, column.field) for column in columns_of(["gpu_hours", "Owner"])] == [
        ("GPU-HOURS", "gpu_hours"),
        ("OWNER", "Owner"),
    ]
