"""The commands as a person uses them, on real servers, compared with the imported file."""

import csv
import io
import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import orjson
import pytest

from gpuledger.cli.times import format_time
from gpuledger.projection.outstanding import ChangedDecisions
from gpuledger.projection.verify import Verification
from gpuledger.tools.importers.sample import write_titan_sample
from gpuledger.tools.projections import verify_projections
from gpuledger.tools.queries.backend import Backend
from support import servers
from support.cli import Cli, Result
from support.titan import TitanFile
from support.up import gpuledger

TIMES_TRIED = 6


@pytest.fixture(scope="module")
def sample() -> Iterator[Path]:
    """A file in Titan's format."""
    with servers.short_directory() as folder:
        path = folder / "sample.csv"
        with path.open("w", newline="") as file:
            write_titan_sample(file, seed=7, devices=300)
        yield path


@pytest.fixture(scope="module")
def urls(postgres_server_url: str) -> Iterator[dict[str, str]]:
    """Two real servers, and the environment that names them."""
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url) as database_url:
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


@pytest.fixture(scope="module")
def fleet(urls: dict[str, str], sample: Path) -> TitanFile:
    """The sample, imported by commands in processes of their own."""
    for arguments in (("migrate",), ("import", "titan", str(sample))):
        done = gpuledger(sample.parent / "data", *arguments, **urls)
        assert done.returncode == 0, done.stderr
    return TitanFile(sample)


def test_import_then_report(cli: Cli, fleet: TitanFile) -> None:
    (row,) = cli("report", "fleet", "-o", "json").json()
    assert row["devices"] == len(fleet.devices())
    assert row["slots"] == len(fleet.slots())
    assert row["lives"] == len(fleet.lives)
    assert row["gpu_years"] == pytest.approx(fleet.gpu_years(), abs=0.005)
    assert row["failures"] == fleet.failures()
    assert row["in_service"] == len({serial for serial, _ in fleet.installed(fleet.data_end)})
    assert row["overlaps"] == len(fleet.overlaps())
    assert row["overlap_slots"] == len(set(fleet.overlaps()))
    assert row["devices_in_two_places"] == len(fleet.devices_in_two_places())


def test_importing_again_adds_nothing(cli: Cli, fleet: TitanFile, sample: Path) -> None:
    before = cli("log", "stats", "-o", "json").out
    again = cli("import", "titan", str(sample))
    assert (again.code, again.err.split(" events")[0]) == (0, "titan: 0")
    assert cli("log", "stats", "-o", "json").out == before


def test_get_at_equals_the_file(cli: Cli, fleet: TitanFile) -> None:
    moments = random.Random(3).sample(fleet.moments(), TIMES_TRIED)
    for moment in [
        *moments,
        moments[0] - timedelta(microseconds=1),
        fleet.data_end,
        fleet.data_end + timedelta(days=9),
    ]:
        rows = cli("get", "devices", "--at", format_time(moment), "-o", "json").json()
        installed = {(row["device"], row["slot"]) for row in rows if row["state"] == "InService"}
        expected = fleet.installed(moment)
        assert installed <= expected
        assert {device for device, _ in installed} == {device for device, _ in expected}


def test_get_at_equals_sql_on_the_history(cli: Cli, fleet: TitanFile) -> None:
    moment = format_time(fleet.moments()[len(fleet.moments()) // 2])
    rows = cli("get", "slots", "--at", moment, "-o", "json").json()
    occupied = sum(row["occupants"] for row in rows)
    condition = f"valid_from <= '{moment}' AND (valid_to IS NULL OR valid_to > '{moment}')"
    counted = cli("sql", f"SELECT count(*) AS n FROM installation WHERE {condition}", "-o", "json").json()
    assert counted == [{"n": occupied}]


def test_as_recorded_shows_the_state_as_it_was_recorded(cli: Cli, fleet: TitanFile) -> None:
    assert cli("get", "devices", "--as-recorded", "1/0", "-o", "json").json() == []
    now = cli("get", "devices", "-o", "json").json()
    assert cli("get", "devices", "--as-recorded", "now", "-o", "json").json() == now
    beyond = cli("get", "devices", "--as-recorded", "1/999999999")
    assert (beyond.code, beyond.out) == (2, "")


def test_timeline_shows_a_life(cli: Cli, fleet: TitanFile) -> None:
    device = min(fleet.devices_in_two_places())
    rows = cli("timeline", "device", device, "-o", "json").json()
    events = [row["event"] for row in rows]
    lives = [life for life in fleet.lives if life.serial == device]
    assert events.count("inserted") == len(lives)
    assert events.count("removed") == sum(life.end is not None for life in lives)
    assert "device-in-two-slots" in events
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)


def test_diff_is_what_changed(cli: Cli, fleet: TitanFile) -> None:
    moments = fleet.moments()
    earlier, later = moments[len(moments) // 3], moments[len(moments) // 2]
    rows = cli("diff", format_time(earlier), format_time(later), "-k", "devices", "-o", "json").json()
    moved = {row["name"] for row in rows if "slot" in row["changes"]}
    before, after = dict(fleet.installed(earlier)), dict(fleet.installed(later))
    certain = fleet.devices() - fleet.devices_in_two_places()
    assert moved & certain == {name for name in certain if before.get(name) != after.get(name)}
    assert cli("diff", format_time(later), format_time(later), "-o", "json").json() == []


def test_relative_times_are_no_options(cli: Cli, fleet: TitanFile) -> None:
    assert cli("diff", "-2h", "-1h30m", "-o", "json").json() == []


def test_columns_of_one_name_are_all_shown(cli: Cli, fleet: TitanFile) -> None:
    assert cli("sql", "SELECT 1 AS a, 2 AS a, 3 AS a_1", "-o", "json").json() == [{"a": 1, "a_1": 2, "a_1_1": 3}]


def test_arrays_of_a_query_read_back_from_csv_as_they_are_in_json(cli: Cli, fleet: TitanFile) -> None:
    query = (
        """SELECT '[{"a": [1, "b,c"]}, null]'::jsonb AS documents, ARRAY['x', 'y,"z"'] AS texts, ARRAY[1, 2] AS ns"""
    )
    (row,) = cli("sql", query, "-o", "json").json()
    (fields,) = csv.DictReader(io.StringIO(cli("sql", query, "-o", "csv").out, newline=""))
    assert {name: orjson.loads(field) for name, field in fields.items()} == row
    assert row == {"documents": [{"a": [1, "b,c"]}, None], "texts": ["x", 'y,"z"'], "ns": [1, 2]}


def test_verify_proves_and_names_what_differs(cli: Cli, fleet: TitanFile, urls: dict[str, str]) -> None:
    assert cli("verify").code == 0
    servers._execute(urls["DATABASE_URL"], "UPDATE gpuledger_live.slot SET lives = lives + 1 WHERE lives = 1")
    wrong = cli("verify", "devices")
    assert wrong.code == 1
    assert "the ledger says" in wrong.err
    assert "gpuledger replay devices" in wrong.err
    assert cli("replay", "devices").code == 0
    assert cli("verify").code == 0


def test_a_rollback_goes_back_as_a_whole_or_not_at_all(cli: Cli, fleet: TitanFile) -> None:
    assert cli("replay", "devices").code == 0
    refused = cli("replay", "--rollback")
    assert (refused.code, "Only devices can go back" in refused.err) == (1, True)
    assert cli("replay", "devices", "--rollback").code == 0
    assert cli("verify").code == 0


def test_names_are_taken_as_they_are_written(cli: Cli, fleet: TitanFile) -> None:
    first = cli("get", "devices", "-o", "name").out.splitlines()[0]
    assert cli("get", "devices", first, "-o", "name").out.splitlines() == [first]


def test_replay_dry_run_writes_nothing(cli: Cli, fleet: TitanFile) -> None:
    before = cli("sql", "SELECT name, edition, incarnation FROM gpuledger.projection ORDER BY 1, 2", "-o", "csv").out
    expected = cli("replay", "--dry-run")
    assert expected.code == 0
    assert "0 would change" in expected.err
    assert (
        cli("sql", "SELECT name, edition, incarnation FROM gpuledger.projection ORDER BY 1, 2", "-o", "csv").out
        == before
    )


def test_verify_names_decisions_that_another_version_made_otherwise(
    cli: Cli, fleet: TitanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def verified(backend: Backend, names: Sequence[str]) -> list[Verification]:
        found = await verify_projections(backend, names)
        return [one._replace(changed_decisions=ChangedDecisions(3, 2)) for one in found]

    assert "as the ledger says" in cli("verify", "devices").err
    monkeypatch.setattr("gpuledger.cli.commands.projections.verify_projections", verified)
    result = cli("verify", "devices")
    assert result.code == 0
    assert "devices: 3 decisions in the log have another content" in result.err
    assert "the last at 1/2." in result.err
    assert "what this build makes of the ledger" in result.err


def test_bad_rows_are_reported_and_the_rest_is_imported(cli: Cli, fleet: TitanFile, tmp_path: Path) -> None:
    file, rejects = tmp_path / "bad.csv", tmp_path / "rejects.jsonl"
    file.write_text(
        "SN,location,insert,remove,duration,out,event\n"
        "bad-1,c0-0c0s0n0,2015-01-01 00:00:00,2014-01-01 00:00:00,1,TRUE,\n"
        "bad-2,c0-0c0s0n0,yesterday,2014-01-01 00:00:00,1,TRUE,\n"
        "bad-3,c0-0c0s0n0,2013-01-01 00:00:00\n"
        "bad-4,c0-0c0s0n0,2013-01-01 00:00:00,2014-01-01 00:00:00,1,TRUE,XYZ\n"
        "good-1,c99-9c9s9n9,2013-01-01 00:00:00,2014-01-01 00:00:00,1,TRUE,DBE\n"
    )
    result = cli("import", "titan", str(file), "--rejects", str(rejects))
    assert result.code == 3
    assert "4 rows rejected" in result.err
    rejected = [orjson.loads(line) for line in rejects.read_bytes().splitlines()]
    assert [(reject["line"], bool(reject["reason"])) for reject in rejected] == [
        (2, True),
        (3, True),
        (4, True),
        (5, True),
    ]
    (row,) = cli("get", "devices", "good-1", "-o", "json").json()
    assert (row["state"], row["failures"]) == ("Retired", 1)


def test_the_rejects_never_take_the_place_of_the_file(cli: Cli, fleet: TitanFile, tmp_path: Path) -> None:
    file = tmp_path / "same.csv"
    file.write_text("SN,location,insert,remove,duration,out,event\nbad,,,,,,\n")
    result = cli("import", "titan", str(file), "--rejects", str(file))
    assert (result.code, "Name another file" in result.err) == (2, True)
    assert file.read_text().startswith("SN,")


@pytest.mark.parametrize("output", ["table", "wide", "json", "jsonl", "yaml", "name", "csv"])
def test_every_output_has_data_on_stdout_and_nothing_else(cli: Cli, fleet: TitanFile, output: str) -> None:
    result = cli("get", "contradictions", "-o", output)
    assert result.code == 0
    assert result.out
    assert result.err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("get", "nonsense"), 2, "Choose from devices"),
        (("get", "devices", "--at", "soon"), 2, "is not a time"),
        (("get", "devices", "nobody"), 1, "was not found"),
        (("get", "sources", "--at", "2015-01-01"), 2, "--as-recorded"),
        (("get", "devices", "--at", "now", "--as-recorded", "1"), 2, "exclude each other"),
        (("report", "nonsense"), 2, "Choose from fleet"),
        (("timeline", "device", "nobody"), 1, "was not found"),
        (("timeline", "slot", "n"), 2, "Ask for a device"),
        (("sql", "DELETE FROM gpuledger_live.device"), 1, "would change the database"),
        (("sql", "COPY (SELECT 1) TO STDOUT"), 1, "COPY is not supported here"),
        (("sql", "SELECT 'infinity'::timestamptz"), 1, "PostgreSQL refused"),
        (("import", "titan", "/dev/null", "--rejects", "/does/not/exist/r"), 1, "cannot be written"),
        (("replay", "nonsense"), 2, "Choose from devices"),
        (("import", "titan", "/does/not/exist"), 1, "/does/not/exist"),
    ],
)
def test_errors_are_one_sentence_and_a_next_step(
    cli: Cli, fleet: TitanFile, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    result = cli(*arguments)
    assert (result.code, result.out) == (code, "")
    assert expected in result.err
    assert len(result.err.splitlines()) == 1
    assert "Traceback" not in result.err


def test_one_server_without_the_other_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    monkeypatch.delenv("DATABASE_URL", raising=False)
    result = Cli(capsys)("report", "fleet")
    assert (result.code, "DATABASE_URL is not" in result.err) == (2, True)


def test_unreachable_servers_are_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    monkeypatch.setenv("DATABASE_URL", "postgresql://gpuledger@127.0.0.1:1/gpuledger")
    result = Cli(capsys)("report", "fleet")
    assert (result.code, "Start it, or set DATABASE_URL." in result.err) == (4, True)


def test_late_events_correct_history_in_whatever_order_they_were_recorded(
    own_urls: dict[str, str],
    sample: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """The sample's facts in three random parts, each imported for itself: every moment is still that of the file."""
    for name, url in own_urls.items():
        monkeypatch.setenv(name, url)
    cli, fleet = Cli(capsys), TitanFile(sample)
    facts = fleet.facts()
    random.Random(5).shuffle(facts)
    assert cli("migrate").code == 0
    for part in range(3):
        file = tmp_path / f"part-{part}.jsonl"
        file.write_text("".join(f"{line}\n" for line in facts[part::3]))
        assert cli("import", "jsonl", str(file)).code == 0
    ambiguous = fleet.devices_in_two_places()
    for moment in random.Random(6).sample(fleet.moments(), TIMES_TRIED):
        found = {(device, slot) for device, slot in _devices_at(cli, moment) if device not in ambiguous}
        assert found == {(device, slot) for device, slot in fleet.installed(moment) if device not in ambiguous}
    (row,) = cli("report", "fleet", "-o", "json").json()
    assert (row["lives"], row["overlaps"]) == (len(fleet.lives), len(fleet.overlaps()))
    assert cli("verify").code == 0


@pytest.fixture
def own_urls(database_url: str) -> Iterator[dict[str, str]]:
    """A ledger and a database of one test alone."""
    with servers.nats_server() as nats:
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


def _devices_at(cli: Cli, moment: datetime) -> set[tuple[str, str]]:
    result: Result = cli("get", "devices", "--at", format_time(moment), "-o", "json")
    return {(row["device"], row["slot"]) for row in result.json() if row["state"] == "InService"}
