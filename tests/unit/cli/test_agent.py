"""`gpuledger agent probe`, `permissions` and the socket by which faults are injected."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpuledger.agent.control import control_socket, request_fault
from gpuledger.agent.errors import ControlError
from gpuledger.agent.hardware.simulated import SimulatedHardware
from gpuledger.cli.commands import agent_probe
from gpuledger.cli.commands.agent import app
from gpuledger.cli.commands.agent_probe import show_probe, write_probe
from gpuledger.cli.errors import CliError
from gpuledger.cli.render import Output
from gpuledger.runtime.settings import SettingsError
from gpuledger.tools import probe
from gpuledger.tools.errors import ToolError
from support.servers import short_directory


class Given:
    """Makes the hardware that the command chooses."""

    def __init__(self, spec: str) -> None:
        self.hardware = SimulatedHardware(spec, node="probe")

    def __call__(self, _text: str, _node: str) -> SimulatedHardware:
        return self.hardware


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    given = Given("2xH100,1xT4")
    monkeypatch.setattr(probe, "open_hardware", given)
    return given


def probed(capsys: pytest.CaptureFixture[str], classes: str = "") -> dict[str, dict[str, object]]:
    show_probe("any", classes, Output.JSON, headers=True)
    rows = json.loads(capsys.readouterr().out)
    return {row["address"]: row for row in rows}


def test_every_card_is_shown(given: Given, capsys: pytest.CaptureFixture[str]) -> None:
    cards = given.hardware.survey().cards
    rows = probed(capsys)
    assert list(rows) == [card.address for card in cards]
    first = rows[cards[0].address]
    assert (first["uuid"], first["serial"], first["compute"]) == (cards[0].uuid, cards[0].serial, "9.0")
    assert (first["mig"], first["instances"], first["health"]) == ("off", 0, "ok")
    assert rows[cards[2].address]["mig"] is None, "a T4 knows no MIG"


@pytest.mark.parametrize(
    ("fault", "classes", "health"),
    [
        ("off-bus", "", "OffTheBus (fault)"),
        ("nvlink-down", "", "NvlinkDown (warning)"),
        ("nvlink-down", "NvlinkDown=fault", "NvlinkDown (fault)"),
        ("nvlink-down", "NvlinkDown=ignore", "ok"),
    ],
)
def test_a_bad_card_is_shown_as_an_agent_would_report_it(
    given: Given, capsys: pytest.CaptureFixture[str], fault: str, classes: str, health: str
) -> None:
    given.hardware.inject(fault)
    rows = probed(capsys, classes)
    assert [row["health"] for row in rows.values()] == [health, "ok", "ok"]


def test_without_a_driver_the_cards_are_shown_and_the_command_fails(
    given: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    given.hardware.inject("driver-missing")
    with pytest.raises(CliError, match="DriverMissing: no driver answers for 3 cards on the PCI bus"):
        show_probe("any", "", Output.JSON, headers=True)
    rows = json.loads(capsys.readouterr().out)
    assert [(row["uuid"], row["health"]) for row in rows] == [(None, "unknown")] * 3
    assert rows[0]["product"].startswith("10de:")


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize("anonymous", [True, False])
def test_a_recording_is_played(
    given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], anonymous: bool
) -> None:
    path, paused = tmp_path / "machine.json", list[float]()
    monkeypatch.setattr(agent_probe, "sleep", paused.append)
    real = [card.uuid for card in given.hardware.survey().cards]
    write_probe("any", path, moments=3, anonymous=anonymous)
    assert len(paused) == 2
    capsys.readouterr()
    monkeypatch.undo()
    show_probe(f"recorded:{path}", "", Output.JSON, headers=True)
    rows = json.loads(capsys.readouterr().out)
    assert ([row["uuid"] for row in rows] == real) is not anonymous
    assert [row["product"] for row in rows] == ["NVIDIA H100 80GB HBM3"] * 2 + ["Tesla T4"]


@pytest.mark.usefixtures("given")
def test_a_recording_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cannot be written: No such file"):
        write_probe("any", tmp_path / "no" / "folder", moments=1, anonymous=True)


@pytest.mark.parametrize(("spec", "message"), [("2xT4", "2 cards; driver "), ("1xT4", "1 card; driver ")])
def test_the_number_of_cards_is_shown(spec: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_probe(f"simulated:{spec}", "", Output.NAME, headers=True)
    assert capsys.readouterr().err.startswith(message)


def test_a_recording_without_a_file_is_no_hardware() -> None:
    with pytest.raises(SettingsError, match="'recorded:' is none of"):
        show_probe("recorded:", "", Output.NAME, headers=True)


def test_permissions_are_printed_as_the_server_reads_them() -> None:
    printed = CliRunner().invoke(app, ["permissions", "w1.example.com"]).stdout
    assert '"ledger.node.w1%2Eexample%2Ecom.>"' in printed
    assert 'user: "w1.example.com"' in printed
    assert '"ledger.node.{{name()}}.>"' in CliRunner().invoke(app, ["permissions"]).stdout
    with pytest.raises(SettingsError, match="'W_1 a' is not the name of a node"):
        CliRunner().invoke(app, ["permissions", "W_1 a"], catch_exceptions=False)
    accounts = CliRunner().invoke(app, ["permissions", "--accounts"]).stdout
    assert "exports: [" in accounts
    assert "imports: [" in accounts


async def test_faults_reach_the_hardware_and_wrong_ones_are_refused() -> None:
    hardware = SimulatedHardware("1xH100")
    with short_directory() as folder:
        async with control_socket(folder, hardware.inject):
            assert "0000:17:00.0" in await request_fault(folder, "xid:79")
            with pytest.raises(ControlError, match="There is no fault 'nonsense'"):
                await request_fault(folder, "nonsense")
        assert [*folder.iterdir()] == [], "the socket goes with the agent"
        with pytest.raises(ControlError, match="No agent with simulated hardware runs on"):
            await request_fault(folder, "xid:79")
    xid = hardware.wait_xid(0)
    assert xid is not None
    assert (xid.address, xid.number) == ("0000:17:00.0", 79)
