"""What the commands print, to the letter, on a sample that is always the same.

After an intended change: `GPULEDGER_UPDATE_GOLDEN=1 make test`, and read the difference.
"""

import os
from pathlib import Path

import pytest

from gpuledger.tools.importers.sample import write_titan_sample
from support import servers
from support.cli import Cli

TRANSCRIPT = Path(__file__).with_name("transcript.txt")
UPDATE = "GPULEDGER_UPDATE_GOLDEN"

COMMANDS = (
    "import titan sample.csv",
    "import titan sample.csv",
    "report fleet",
    "report gpu-hours",
    "report offenders -o csv",
    "report contradictions",
    "get devices --at 2014-06-01",
    "get devices --as-recorded 1/12",
    "get slots --at 2016-01-01 --no-headers",
    "get nodes -o name",
    "get failures -o jsonl",
    "get contradictions -o yaml",
    "get sources",
    "diff 2015-01-01 2016-06-01 --kind devices",
    "get workloads",
    "get slicepools",
    "report exhausted",
    "get unicorns",
    "report nonsense",
    "verify",
)


def test_transcript(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with (tmp_path / "sample.csv").open("w", newline="") as file:
        write_titan_sample(file, seed=11, devices=10)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    with servers.nats_server() as nats:
        monkeypatch.setenv("NATS_URL", nats.url)
        monkeypatch.setenv("DATABASE_URL", database_url)
        assert Cli(capsys)("migrate").code == 0
        transcript = "".join(_shown(Cli(capsys), command) for command in COMMANDS)
    if os.environ.get(UPDATE):
        TRANSCRIPT.write_text(transcript)
    assert transcript == TRANSCRIPT.read_text()


def _shown(cli: Cli, command: str) -> str:
    result = cli(*command.split())
    code = f"[exit code {result.code}]\n" if result.code else ""
    return f"$ gpuledger {command}\n{result.out}{result.err}{code}\n"
