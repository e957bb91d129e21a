"""`gpuledger log`: reads, exports and restores the log, whatever its messages are."""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpuledger.cli.main import main
from gpuledger.events.position import number_of
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.tools.importers.sample import write_titan_sample
from support.servers import short_directory
from support.up import DEADLINE_S, Up, eventually, gpuledger, running_up, start

HOSTILE = (b"\x1b[31m\xff\x00 not json\n", b'{"id":"\\u202ea","deep":' + b"[" * 900 + b"]" * 900 + b"}")


class Ended(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    def rows(self) -> list[dict[str, Any]]:
        """Its JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Log:
    """Runs commands, most of them `gpuledger log ...`, in this process, which is faster than in ones of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, data_dir: Path, *arguments: str) -> Ended:
        return self.command(data_dir, "log", *arguments)

    def command(self, data_dir: Path, *arguments: str) -> Ended:
        for name in ("NATS_URL", "DATABASE_URL"):
            self._monkeypatch.delenv(name, raising=False)
        self._monkeypatch.setenv("GPULEDGER_DATA_DIR", str(data_dir))
        self._monkeypatch.setattr(sys, "argv", ["gpuledger", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Log:
    return Log(monkeypatch, capsys)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """A running `up` whose log holds a sample and two messages that are no events."""
    with short_directory() as directory, running_up(directory / "d") as running:
        with (directory / "titan.csv").open("w", newline="") as file:
            write_titan_sample(file, seed=1, devices=20)
        assert gpuledger(running.data_dir, "import", "titan", str(directory / "titan.csv")).returncode == 0
        publish(running, *HOSTILE)
        yield running


def publish(up: Up, *raw: bytes) -> None:
    """Publish messages that are no events, and wait until the log has a rejection of each."""

    async def publish_them() -> int:
        async with connect_ledger(up.running.endpoints.nats_url, name="test") as ledger:
            before = number_of(await ledger.head())
            for number, data in enumerate(raw):
                await ledger.publish(Outgoing("ledger.node.w1.device.x.failed", f"h{len(data)}-{number}", data))
            return before + 2 * len(raw)

    head = asyncio.run(publish_them())
    eventually(lambda: int(str(up.health().document["head"] or 0)) >= head)


def test_tail_shows_the_last_events_and_undecodable_messages(up: Up, log: Log) -> None:
    rows = log(up.data_dir, "tail", "-n", "1000", "-o", "jsonl").rows()
    assert [row["position"] for row in rows] == [f"1/{number}" for number in range(1, len(rows) + 1)]
    undecodable = [row for row in rows if row["event"] == "undecodable"]
    assert [row["nats_subject"] for row in undecodable] == ["ledger.node.w1.device.x.failed"] * 2
    table = log(up.data_dir, "tail", "-n", "1000", "-o", "wide")
    assert table.code == 0
    assert "\x1b" not in table.out
    assert "\u202e" not in table.out


def test_tail_filters_on_the_server_and_finds_what_lies_far_back(up: Up, log: Log) -> None:
    everything = log(up.data_dir, "tail", "-n", "1000", "-o", "jsonl").rows()
    removed = [row for row in everything if row["event"] == "device.removed"]
    assert log(up.data_dir, "tail", "--type", "device.removed", "-o", "jsonl", "-n", "1000").rows() == removed
    one = removed[0]["subject"]
    of_one = log(up.data_dir, "tail", "--aggregate", "device", "--id", one, "-o", "jsonl").rows()
    assert of_one == [row for row in everything if row["subject"] == one and row["event"].startswith("device.")]
    source = log(up.data_dir, "tail", "--source", "/import/titan", "-n", "1", "-o", "jsonl").rows()
    assert [row["event"] for row in source] == ["source.completed"]
    assert log(up.data_dir, "tail", "--id", "nobody").err == "No events found.\n"
    assert log(up.data_dir, "tail", "--aggregate", "a.>").code == 2


def test_tail_follows_until_ctrl_c(up: Up) -> None:
    with start(up.data_dir, "log", "tail", "-f", "-n", "1", "-o", "jsonl") as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        publish(up, b"came later")
        rows = [json.loads(following.stdout.readline())]
        while rows[-1].get("raw") != "came later":
            rows.append(json.loads(following.stdout.readline()))
        assert int(rows[0]["position"].partition("/")[2]) == int(first["position"].partition("/")[2]) + 1
        following.send_signal(signal.SIGINT)
        _, message = following.communicate(timeout=DEADLINE_S)
        assert (following.returncode, message) == (0, "")


def test_show_finds_by_position_and_by_id(up: Up, log: Log) -> None:
    everything = log(up.data_dir, "tail", "-n", "1000", "-o", "jsonl").rows()
    position = next(row["position"] for row in everything if row.get("source") == "/import/titan")
    (by_position,) = log(up.data_dir, "show", position, "-o", "jsonl").rows()
    assert log(up.data_dir, "show", by_position["id"], "-o", "jsonl").rows() == [by_position]
    assert "nats_subject: ledger.svc.import." in log(up.data_dir, "show", position.partition("/")[2]).out
    beyond = log(up.data_dir, "show", "9999999")
    assert beyond.code == 1
    assert "has no event at 1/9999999" in beyond.err
    assert log(up.data_dir, "show", "no-such-id").code == 1


def test_stats_counts_what_tail_shows(up: Up, log: Log) -> None:
    rows = log(up.data_dir, "stats", "-o", "jsonl").rows()
    total = rows[0]["events"]
    for of in ("event", "source"):
        assert sum(row["events"] for row in rows if row["of"] == of) == total
    assert rows[0]["name"] == "generation 1"


def test_gaps_reports_that_there_are_none(up: Up, log: Log) -> None:
    ended = log(up.data_dir, "gaps")
    assert (ended.code, ended.err) == (0, "No gaps found.\n")


def test_skip_needs_consent_and_a_position_that_is_there(up: Up, log: Log) -> None:
    assert log(up.data_dir, "skip", "3", "--reason", "a test").code == 2
    assert log(up.data_dir, "skip", "9999999", "--reason", "a test", "--yes").code == 1


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_an_exported_log_is_restored_as_it_was(up: Up, log: Log, tmp_path: Path, name: str) -> None:
    archive = tmp_path / name
    before = log(up.data_dir, "tail", "-n", "10", "-o", "jsonl").rows()
    assert log(up.data_dir, "export", str(archive)).code == 0
    assert log(up.data_dir, "export", str(archive)).code == 2
    with short_directory() as directory:
        assert log(directory / "d", "import", str(archive)).code == 0
        after = log(directory / "d", "tail", "-n", "10", "-o", "jsonl").rows()
    volatile = ("recorded", "recorded_at")
    assert [_without(row, volatile) for row in after] == [_without(row, volatile) for row in before]
    ours = [row for row in before if row.get("recorded_at") is None and row["event"] != "undecodable"]
    kept = {row["position"]: row.get("recorded_at") for row in after}
    assert [kept[row["position"]] for row in ours] == [row["recorded"] for row in ours]


@pytest.mark.long
def test_a_log_that_holds_something_is_kept_beside_the_restored_one(log: Log, tmp_path: Path) -> None:
    archive = str(tmp_path / "log.jsonl")
    sample = tmp_path / "titan.csv"
    with sample.open("w", newline="") as file:
        write_titan_sample(file, seed=1, devices=20)
    with short_directory() as directory:
        with running_up(directory / "d") as up:
            assert log.command(up.data_dir, "import", "titan", str(sample)).code == 0
            assert log(up.data_dir, "skip", "2", "--reason", "a test", "--yes").code == 0
            assert log(up.data_dir, "export", archive).code == 0
            assert log(up.data_dir, "import", archive, "--yes").code == 5
        assert log(directory / "d", "import", archive).code == 2
        assert "1 skipped position" in log(directory / "d", "import", archive, "--yes").err
        with running_up(directory / "d") as up:
            assert up.becomes(200).document["generation"] == 2
            rows = log(up.data_dir, "stats", "-o", "jsonl").rows()
            assert rows[0]["events"] == rows[-1]["events"] + 1
            assert log(up.data_dir, "show", "1/1").code == 0
            assert log.command(up.data_dir, "verify").code == 0


def test_a_damaged_archive_is_refused_before_anything_is_done(up: Up, log: Log, tmp_path: Path) -> None:
    whole = gpuledger(up.data_dir, "log", "export", "-").stdout
    lines = whole.splitlines(keepends=True)
    damaged = {
        "cut off": b"".join(lines[:-1]),
        "cut within a line": whole[:-10],
        "a line is missing": b"".join([*lines[:3], *lines[4:]]),
        "a letter is another": whole.replace(b"device", b"devise", 1),
        "empty": b"",
        "something else": b'{"a": 1}\n',
    }
    for name, content in damaged.items():
        archive = tmp_path / f"{name}.jsonl"
        archive.write_bytes(content)
        ended = log(tmp_path / "never", "import", str(archive))
        assert (name, ended.code) == (name, 1), ended.err
        assert ended.err.startswith("Error: ")
    assert not (tmp_path / "never").exists()


def _without(row: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in keys}
