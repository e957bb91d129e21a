"""The exit code of `gpuledger config diff`, by which scripts go."""

from typing import Any

import pytest

from gpuledger.cli.commands import config_preview
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.tools.errors import RequestError, ToolError


@pytest.mark.parametrize(
    ("error", "code"), [(ToolError("it broke"), ExitCode.UNAVAILABLE), (RequestError("no pool"), ExitCode.USAGE)]
)
def test_a_failure_is_not_taken_for_a_difference(
    monkeypatch: pytest.MonkeyPatch, error: ToolError, code: ExitCode
) -> None:
    async def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(config_preview, "_diff", fails)
    with pytest.raises(CliError, match=str(error)) as found:
        config_preview.diff("worker")
    assert found.value.code == code
