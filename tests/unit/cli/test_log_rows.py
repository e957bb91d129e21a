"""A message of the log as a row: whatever an agent sends can be shown, in every format."""

import pytest

from gpuledger.cli.log.rows import DEPTH_MAX, VIEW, row_of
from gpuledger.cli.render import Output, render
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import encode
from support.events import event, message


def nested(depth: int) -> bytes:
    """An event in order whose data nest."""
    data = encode(event(DeviceFailed(kind="DBE"), "d"))
    return data.replace(b'"kind":"DBE"', b'"kind":"DBE","x":%b%b' % (b"[" * depth, b"]" * depth))


@pytest.mark.parametrize("output", list(Output))
@pytest.mark.parametrize("depth", [DEPTH_MAX, 200, 300, 1000])
def test_data_that_nest_deeply_are_shown(depth: int, output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    row = row_of(message(event(DeviceFailed(kind="DBE"), "d"), 5, data=nested(depth)), 1)
    assert (row["event"], row["subject"]) == ("device.failed", "d")
    assert "[" * depth in str(row["data"])
    render([row], VIEW, output, headers=True)
    assert "device.failed" in capsys.readouterr().out or output is Output.NAME
