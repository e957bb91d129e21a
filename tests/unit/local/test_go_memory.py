"""The memory that a server in Go may take follows from its container, unless the environment says it."""

from pathlib import Path

import pytest

from gpuledger.local.servers.go_memory import EMBEDDED_BYTES, LIMIT, container_limit, embedded_limit
from gpuledger.local.servers.privileges import as_ourselves


@pytest.mark.parametrize(
    ("text", "limit"), [("1073741824\n", {LIMIT: "858993459"}), ("max\n", {}), ("", {}), (None, {})]
)
def test_a_server_in_a_container_gets_a_share_of_its_memory(
    text: str | None, limit: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "memory.max"
    if text is not None:
        file.write_text(text)
    assert container_limit({}, file) == limit


def test_a_limit_that_is_set_holds(tmp_path: Path) -> None:
    file = tmp_path / "memory.max"
    file.write_text("1073741824\n")
    environment = {LIMIT: "2GiB"}
    assert (container_limit(environment, file), embedded_limit(environment)) == ({}, {})
    assert embedded_limit({}) == {LIMIT: str(EMBEDDED_BYTES)}


def test_a_child_has_our_environment_and_what_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "1")
    found = as_ourselves("TERM", {"ADDED": "2"}).environment
    assert (found["OURS"], found["ADDED"]) == ("1", "2")
