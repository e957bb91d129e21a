"""Tables that are wider than the terminal: columns of long texts go over several lines, and no character is lost."""

import io
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.cli.commands.diff import DIFFERENCES
from gpuledger.cli.commands.timeline import DEVICE_VIEW, NODE_VIEW
from gpuledger.cli.render import Column, Console, Output, View, render
from gpuledger.cli.render.rows import WRAPPED_CHARS_MIN

VIEW = View("event", (Column("time"), Column("detail", wraps=True), Column("source")))
DETAIL = "card=GPU-1 node=w1 product=NVIDIA-H200 managed=true serial=0321 uuid=GPU-1"
ROW = {"time": "t1", "detail": DETAIL, "source": "/services/inventory"}


def lines(width: int | None, *rows: Mapping[str, object], output: Output = Output.TABLE) -> list[str]:
    out = io.StringIO()
    render(rows, VIEW, output, console=Console(out, io.StringIO(), width=width))
    return out.getvalue().splitlines()


def test_a_wide_column_is_wrapped_between_facts() -> None:
    assert lines(67, ROW, {**ROW, "detail": "short"}) == [
        "TIME   DETAIL                                   SOURCE",
        "t1     card=GPU-1 node=w1 product=NVIDIA-H200   /services/inventory",
        "       managed=true serial=0321 uuid=GPU-1",
        "t1     short                                    /services/inventory",
    ]


@pytest.mark.parametrize("width", [None, 200])
def test_a_row_is_one_line_for_programs_and_where_it_fits(width: int | None) -> None:
    assert lines(width, ROW)[1:] == [f"t1     {DETAIL}   /services/inventory"]


def test_other_formats_are_never_wrapped() -> None:
    assert lines(20, ROW, output=Output.CSV)[1] == f"t1,{DETAIL},/services/inventory"


@given(width=st.integers(1, 120), text=st.text("ab =", max_size=200))
def test_a_line_fits_the_terminal_or_the_column_is_as_narrow_as_it_may_be(width: int, text: str) -> None:
    found = lines(width, {"time": "t", "detail": text, "source": "s"})
    longest = max(map(len, found))
    assert longest <= max(width, len("TIME   ") + WRAPPED_CHARS_MIN + len("   SOURCE"))
    words = "".join("".join(line[7:-1] if line.endswith("s") else line[7:] for line in found[1:]).split())
    assert words == ("".join(text.split()) if text else "<none>")


@pytest.mark.parametrize(("view", "column"), [(DEVICE_VIEW, "detail"), (NODE_VIEW, "detail"), (DIFFERENCES, "fields")])
def test_the_details_of_a_timeline_and_the_fields_of_a_diff_are_wrapped(view: View, column: str) -> None:
    assert [one.name for one in view.columns if one.wraps] == [column]


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "77")
    assert Console.of(Terminal(), io.StringIO(), {}).width == 77
    assert Console.of(io.StringIO(), io.StringIO(), {}).width is None
