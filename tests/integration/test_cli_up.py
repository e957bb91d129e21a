"""`gpuledger up`: its output, its end, and the failures that it survives."""

import asyncio
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime

import orjson
import pytest

from gpuledger.cli.errors import ExitCode
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.position import number_of
from gpuledger.ledger.api import Outgoing, Receipt
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.local.servers.datadir import read_running
from gpuledger.tools.queries.backend import all_projections
from support.cli import Cli
from support.servers import short_directory
from support.up import COMMAND, DEADLINE_S, Up, eventually, gpuledger, running_up, servers_in, start

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with short_directory() as directory, running_up(directory / "d") as running:
        eventually(lambda: leads_all(running))
        yield running


def leads_all(up: Up) -> bool:
    """Whether its health says who leads each projection since when, which takes a moment after it is ready."""
    health = up.health().document
    leaders, projections = health["leaders"], health["projections"]
    assert isinstance(leaders, dict)
    assert isinstance(projections, dict)
    return all((leaders.get(name) or {}).get("since") for name in projections)


@pytest.fixture
def cli(up: Up, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands in this process on what `up` serves, which is faster than in processes of their own."""
    monkeypatch.setenv("GPULEDGER_DATA_DIR", str(up.data_dir))
    return Cli(capsys)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Commands in this process that end before they make the folder of their data."""
    with short_directory() as directory:
        monkeypatch.setenv("GPULEDGER_DATA_DIR", str(directory / "d"))
        yield Cli(capsys)
        assert not (directory / "d").exists()


@pytest.mark.long
def test_up_ends_quietly_and_in_order_when_nobody_can_read_what_it_says() -> None:
    read, write = os.pipe()
    os.close(read)
    with short_directory() as directory:
        command = [*COMMAND, "up", "--data-dir", str(directory / "d"), "--no-kube"]
        environ = {**os.environ, "NO_COLOR": "1"}
        with subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, env=environ) as process:
            os.close(write)
            _, stderr = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, stderr) == (ExitCode.PIPE, b"")
        assert read_running(directory / "d") is None


def publish(up: Up, message: Outgoing) -> int:
    async def publish_it() -> Receipt:
        async with connect_ledger(up.running.endpoints.nats_url, name="test") as ledger:
            return await ledger.publish(message)

    return number_of(asyncio.run(publish_it()).sequence)


def failed(device: str, number: int) -> Outgoing:
    data = DeviceFailed(kind="DBE")
    event = Event(f"{device}-{number}", "/nodes/w1/agent", data.TYPE, device, NOON, data, "e", number)
    return Outgoing(nats_subject_of(event), event.id, encode(event))


def position(up: Up, projection: str) -> int:
    found = up.health().document["projections"]
    assert isinstance(found, dict)
    return int(found[projection]["position"] or 0)


class Logged:
    """What `up` wrote to its log so far; each line must be JSON."""

    def __init__(self, up: Up) -> None:
        assert up.process.stderr is not None
        self._descriptor = up.process.stderr.fileno()
        self._text = b""

    def lines(self) -> list[dict[str, object]]:
        while select.select([self._descriptor], [], [], 0)[0]:
            self._text += os.read(self._descriptor, 65_536)
        return [_parsed(line) for line in self._text.splitlines(keepends=True) if line.endswith(b"\n")]


def _parsed(line: bytes) -> dict[str, object]:
    try:
        parsed: dict[str, object] = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise AssertionError(f"a line of the log is no JSON: {line!r}") from error
    return parsed


@pytest.mark.long
def test_services_may_run_in_several_processes() -> None:
    """Each runs its own, and shows who leads the others."""
    here = {"sources", "seals", "devices"}
    elsewhere = {one.name for one in all_projections()} - here
    with short_directory() as directory, running_up(directory / "a", "--no-kube", "--only", ",".join(here)) as one:
        servers = one.running.endpoints
        options = ("--no-kube", "--only", ",".join(elsewhere))
        urls = {"NATS_URL": servers.nats_url, "DATABASE_URL": servers.database_url}
        assert one.becomes(200).document["projections"].keys() == here  # type: ignore[attr-defined]
        assert not _led_elsewhere(one)
        with running_up(directory / "b", *options, **urls) as other:
            assert other.becomes(200).document["projections"].keys() == elsewhere  # type: ignore[attr-defined]
            at = publish(one, failed("d1", 1))
            eventually(lambda: position(one, "devices") >= at and position(other, "pools") >= at)
            eventually(lambda: _led_elsewhere(one) == elsewhere)
            assert _led_elsewhere(other) == here


def _led_elsewhere(up: Up) -> set[str]:
    """The projections that another process leads, as this one shows."""
    document = up.health().document
    leaders, own = document["leaders"], document["projections"]
    assert isinstance(leaders, dict)
    assert isinstance(own, dict)
    return {name for name, leader in leaders.items() if leader is not None and name not in own}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--only", "pools,indx"), "There is no service 'indx'. Choose from devices, nodes,"),
        (("--no-rules",), "--no-rules is about a simulated fleet. Add --fleet"),
        (("--only", "pools", "--fleet", "nodes=1"), "are about a cluster. Add edge to --only"),
    ],
)
def test_options_that_cannot_go_together_are_refused(nowhere: Cli, options: tuple[str, ...], says: str) -> None:
    done = nowhere("up", *options)
    assert done.code == ExitCode.USAGE
    assert says in " ".join(done.err.split())


def test_it_shows_how_to_reach_everything(up: Up) -> None:
    endpoints = up.running.endpoints
    assert f"export NATS_URL={endpoints.nats_url}\n" in up.printed
    assert f"export DATABASE_URL={endpoints.database_url}\n" in up.printed
    health = up.becomes(200)
    assert health.document["status"] == "ok"
    leaders = health.document["leaders"]
    assert isinstance(leaders, dict)
    assert leaders["devices"]["process"].endswith(f"/{up.process.pid}")
    status, metrics = up.get("/metrics")
    assert status == 200
    assert b'gpuledger_projection_lag_events{projection="devices"} 0.0' in metrics
    assert b'gpuledger_published_total{outcome="recorded"}' in metrics
    assert up.get("/passwords")[0] == 404
    eventually(lambda: b'gpuledger_nats_storage_bytes{scope="stream"}' in up.get("/metrics")[1])


def test_what_is_published_is_projected(up: Up) -> None:
    recorded = publish(up, failed("gpu-1", 1))
    eventually(lambda: position(up, "devices") >= recorded)


@pytest.mark.long
def test_a_second_one_on_the_same_folder_is_refused(up: Up) -> None:
    refused = gpuledger(up.data_dir, "up")
    assert refused.returncode == 5
    assert f"in use by `gpuledger up` (pid {up.process.pid}" in refused.stderr.decode()
    assert refused.stdout == b""


def test_no_address_is_refused_at_once(up: Up, cli: Cli) -> None:
    assert cli("up", "--listen", "9100").code == 2


def test_doctor_checks_everything_and_starts_nothing(up: Up, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cli("doctor", "-o", "jsonl")
    assert found.code == 0, found.out
    checks = {row["check"]: row for row in map(orjson.loads, found.out.splitlines())}
    well = ("nats", "stream", "durability", "schema", "leaders", "projection devices")
    assert {checks[check]["status"] for check in well} == {"ok"}
    assert f"/{up.process.pid} leads devices" in checks["leaders"]["detail"]
    nowhere = up.data_dir.parent / "nowhere"
    monkeypatch.setenv("GPULEDGER_DATA_DIR", str(nowhere))
    assert "is not there yet" in cli("doctor").out
    assert not nowhere.exists()


def test_a_projection_that_stops_is_reported_while_others_go_on_and_resumes_after_a_skip(up: Up, cli: Cli) -> None:
    up.becomes(200)
    good = Event("bad", "/services/inventory", DeviceFailed.TYPE, "d", NOON, DeviceFailed(kind="DBE"), "e", 1)
    document = orjson.loads(encode(good)) | {"data": {"kind": 5}}
    bad = publish(up, Outgoing(nats_subject_of(good), "bad", orjson.dumps(document)))
    health = up.becomes(503)
    assert f"stopped at 1/{bad}" in str(health.document["reason"])
    later = publish(up, failed("gpu-2", 2))
    eventually(lambda: position(up, "nodes") >= later)
    assert position(up, "devices") < bad
    assert cli("log", "skip", str(bad), "--reason", "made by a test", "--yes").code == 0
    up.becomes(200)
    eventually(lambda: position(up, "devices") >= later)


def test_servers_that_are_killed_come_back(up: Up) -> None:
    before = up.server_pids()
    logged = Logged(up)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(_pids(up) - before) == 2)
    eventually(lambda: any("is back" in str(line["event"]) for line in logged.lines()))
    recorded = publish(up, failed("gpu-3", 3))
    eventually(lambda: position(up, "devices") >= recorded)
    up.becomes(200)


def test_a_signal_ends_it_in_order() -> None:
    """SIGTERM here; that SIGINT does too, every test with a running `up` proves at its end."""
    with short_directory() as directory, running_up(directory / "d") as up:
        up.process.send_signal(signal.SIGTERM)
        up.process.wait(DEADLINE_S)


def test_a_signal_while_it_starts_ends_it_in_order() -> None:
    with short_directory() as directory, start(directory / "d", "up") as process:
        eventually((directory / "d" / "nats").exists)
        process.send_signal(signal.SIGTERM)
        _, printed = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, printed
        assert not servers_in(directory / "d")


def test_a_kubeconfig_that_is_not_there_is_all_that_is_complained_of(
    nowhere: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    result = nowhere("up")
    expected = "Error: There is no kubeconfig at /nowhere. Name one with --kubeconfig or KUBECONFIG.\n"
    assert (result.code, result.err) == (2, expected)


def _pids(up: Up) -> set[int]:
    try:
        return up.server_pids()
    except (FileNotFoundError, ValueError):
        return set()
