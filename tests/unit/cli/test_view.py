"""What an output needs of the rows that it shows."""

import pytest

from gpuledger.cli.render import Column, Output, View

DEVICES = View("device", (Column("device"), Column("state"), Column("gpu-years"), Column("since", wide=True)), "device")


@pytest.mark.parametrize(
    ("output", "keys"),
    [
        (Output.TABLE, ("device", "state", "gpu_years")),
        (Output.WIDE, ("device", "state", "gpu_years", "since")),
        (Output.NAME, ("device",)),
        (Output.JSON, ()),
        (Output.CSV, ()),
    ],
)
def test_a_view_needs_what_it_shows_and_the_name(output: Output, keys: tuple[str, ...]) -> None:
    assert DEVICES.needed(output) == keys
    assert View("thing").needed(output) == ()


def test_the_name_is_needed_where_no_column_shows_it() -> None:
    assert View("thing", (Column("state"),), "uid").needed(Output.TABLE) == ("state", "uid")
