"""The errors of the control socket."""

from pathlib import Path

import pytest

from gpuledger.agent.control import request_fault
from gpuledger.agent.errors import ControlError


async def test_an_agent_of_another_user_is_distinguished_from_one_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ControlError, match="No agent with simulated hardware runs on"):
        await request_fault(tmp_path, "xid:79")

    async def refuse(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("asyncio.open_unix_connection", refuse)
    with pytest.raises(ControlError, match=r"belongs to another user; run this as that user, or as root\."):
        await request_fault(tmp_path, "xid:79")
