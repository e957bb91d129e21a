"""The past of closed generations, from their streams and from their archives: rows, snapshots, reports, months."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gpuledger.db.engine import connect
from gpuledger.events.envelope import decode
from gpuledger.events.node import NodeRegistered
from gpuledger.events.position import Position, is_at_or_after
from gpuledger.ledger import stream_ledger
from gpuledger.ledger.errors import GenerationError, LogRestoredError
from gpuledger.ledger.identity import Anchor, anchor_of
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.continuity import confirm_checkpoint
from gpuledger.projection.errors import GenerationMismatchError
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.projection.kept_fold import KeptFold
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.replay import fold_on
from gpuledger.projection.snapshot import layout_of, snapshot_of
from gpuledger.projection.snapshots import Snapshots, SnapshotSettings
from gpuledger.projection.store import ProjectionStore
from gpuledger.projection.verify import verify
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.objects import open_objects
from gpuledger.runtime.settings import Servers
from gpuledger.tools.log_archive import messages, read_header
from gpuledger.tools.queries.backend import Backend, all_projections
from gpuledger.tools.snapshots import stored, take
from support.cli import Run
from support.closing import caught_up, close_at, opened, rows_of, services
from support.events import AGENT, event
from support.imports import TITAN_HEADER, write
from support.ledgers import everything
from support.projections import assert_true, execute, publish
from support.runners import failures

EVENTS = 1_100
"""More than a seal covers."""

MORE = 40


@pytest.mark.long
async def test_the_past_is_read_from_the_archive_once_the_stream_is_gone(
    servers: Servers, location: str, cli: Run
) -> None:
    async with services(servers) as supervision:
        await publish(supervision.ledger, failures(range(1, EVENTS)))
        await caught_up(supervision)
        await close_at(servers, location)
        await publish(supervision.ledger, failures(range(EVENTS, EVENTS + MORE)))
        await caught_up(supervision)
        before, served = await everything(supervision.ledger), rows_of(servers.database_url)
    assert "nothing to" not in (await cli("log", "archive", "write", location, "--no-tables")).err
    deleted = await cli("log", "archive", "delete-stream", location, "1", "--yes")
    assert deleted.code == 0, deleted.err
    again = await cli("log", "archive", "delete-stream", location, "1", "--yes")
    assert "has no stream any more" in again.err
    async with opened(servers) as ledger:
        assert await everything(ledger) == before
        assert await ledger.message_at(7) == before[6]
        assert await ledger.messages_at([7, 900, EVENTS + MORE]) == [
            before[6],
            before[899],
            await ledger.message_at(EVENTS + MORE),
        ]
        for projection in all_projections():
            await rebuild(projection, ledger, servers.database_url)
        assert rows_of(servers.database_url) == served
        for projection in all_projections():
            assert (await verify(projection, ledger, servers.database_url)).differences == 0
    for command in (["verify"], ["verify", "--log"], ["log", "archive", "verify", location], ["doctor"]):
        found = await cli(*command)
        assert found.code == 0, found.err + found.out
    assert "1/5" in (await cli("log", "show", "5")).out
    past = await cli("get", "devices", "--as-recorded", "1/700", "-o", "name")
    assert past.code == 0, past.err
    none = await cli("get", "devices", "--as-recorded", "2/700")
    assert "The log has no position 2/700. It is 1/700." in none.err
    async with services(servers) as supervision:
        await publish(supervision.ledger, failures(range(EVENTS + MORE, EVENTS + 2 * MORE)))
        await caught_up(supervision)


@pytest.mark.parametrize("partitions", [1, pytest.param(4, marks=pytest.mark.long)])
async def test_who_has_not_noticed_that_a_generation_was_closed_and_deleted_goes_on(
    servers: Servers, location: str, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_ledger, "GENERATION_CHECK_S", 3_600.0)
    of_card = "ledger.*.*.device.d1.*"
    async with AsyncExitStack() as stack:
        whole, filtered, places, last, anchor = [await stack.enter_async_context(opened(servers)) for _ in range(5)]
        without_archives = await stack.enter_async_context(connect_ledger(servers.nats_url, name="without archives"))
        await publish(whole, failures(range(1, MORE)))
        before = await everything(whole)
        selected = await everything(whole, subject_filter=of_card)
        assert 0 < len(selected) < len(before)
        await close_at(servers, location)
        assert (await cli("log", "archive", "delete-stream", location, "1", "--yes")).code == 0
        assert {one.generation for one in (whole, filtered, places, last, anchor, without_archives)} == {1}
        found, found_of_card, found_places, found_last, found_anchor = await asyncio.gather(
            everything(whole),
            everything(filtered, subject_filter=of_card),
            places.messages_at([7, MORE - 1]),
            last.last_sequence("ledger.svc.>"),
            anchor.anchor_at(7),
        )
        assert whole.generation == 2
        assert found[: MORE - 1] == before
        assert found[MORE - 1].subject.endswith(".archived")
        assert found_of_card[: len(selected)] == selected
        assert found_places == [before[6], before[MORE - 2]]
        assert is_at_or_after(found_last, MORE)
        assert found_anchor == anchor_of(7, before[6].subject, before[6].data)
        with pytest.raises(GenerationError, match="nothing here reads its archive"):
            await everything(without_archives)


async def test_a_timeline_goes_on_across_months_that_retention_deleted(
    servers: Servers, location: str, cli: Run
) -> None:
    node = [event(NodeRegistered(gpu_count=count), "n1", number=count, at=count) for count in (1, 2)]
    async with services(servers) as supervision:
        await publish(supervision.ledger, [*failures(range(1, MORE)), node[0]])
        await caught_up(supervision)
    await close_at(servers, location)
    assert (await cli("log", "archive", "delete-stream", location, "1", "--yes")).code == 0
    async with services(servers) as supervision:
        await publish(supervision.ledger, [*failures(range(MORE, 2 * MORE)), node[1]])
        await caught_up(supervision)
        everyone = [decode(one.data) for one in await everything(supervision.ledger)]
    of_card = {one.id for one in everyone if one.subject == "d1" and one.source == AGENT}
    of_node = {one.id for one in node}

    async def timeline(kind: str, name: str, of: set[str]) -> tuple[set[str], str]:
        found = await cli("timeline", kind, name, "--no-kube", "-o", "json")
        return of & {one["event_id"] for one in found.json()}, found.err

    assert await timeline("device", "d1", of_card) == (of_card, "")
    assert await timeline("node", "n1", of_node) == (of_node, "")
    deleted = await cli("log", "archive", "delete", location, "--before", "9999-01", "--reason", "a year", "--yes")
    assert deleted.code == 0, deleted.err
    assert await timeline("device", "d1", of_card) == (of_card, "")
    left, message = await timeline("node", "n1", of_node)
    assert left == {node[1].id}
    assert "Retention has deleted 1 events about node n1 from the archive" in message


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_services_that_were_away_read_the_rest_of_a_closed_generation(
    servers: Servers, location: str, cli: Run, *, is_deleted: bool
) -> None:
    async with services(servers) as supervision:
        await publish(supervision.ledger, failures(range(1, MORE)))
        await caught_up(supervision)
    async with opened(servers) as ledger:
        await publish(ledger, failures(range(MORE, 2 * MORE)))
    await close_at(servers, location)
    if is_deleted:
        assert (await cli("log", "archive", "delete-stream", location, "1", "--yes")).code == 0
    async with services(servers) as supervision:
        await publish(supervision.ledger, failures(range(2 * MORE, 3 * MORE)))
        await caught_up(supervision)
        for projection in all_projections():
            found = await verify(projection, supervision.ledger, servers.database_url)
            assert (found.differences, found.position.generation) == (0, 2), found


async def test_rows_that_end_with_another_event_are_refused_as_after_a_restore(
    servers: Servers, location: str, cli: Run
) -> None:
    projection = DevicesProjection()
    async with opened(servers) as ledger:
        await publish(ledger, failures(range(1, MORE)))
        await rebuild(projection, ledger, servers.database_url)
        await close_at(servers, location)
    execute(servers.database_url, "UPDATE gpuledger.projection SET last_digest = repeat('0', 64)")
    async with opened(servers) as ledger, connect(servers.database_url, application_name="test") as connection:
        checkpoint = await ProjectionStore(connection, projection).checkpoint()
        assert checkpoint is not None
        assert checkpoint.at == Position(1, MORE - 1)
        with pytest.raises(LogRestoredError, match="in a closed generation, stands another event"):
            await confirm_checkpoint(projection, ledger, checkpoint)
        with pytest.raises(GenerationMismatchError):
            await confirm_checkpoint(projection, ledger, checkpoint._replace(generation=2))
    assert (await cli("doctor")).code == 1


async def test_snapshots_of_services_and_folds_go_on_behind_a_closed_generation(
    servers: Servers, location: str, tmp_path: Path
) -> None:
    projection = DevicesProjection()
    async with opened(servers) as ledger:
        await publish(ledger, failures(range(1, MORE)))
        kept = KeptFold(projection, ledger, servers.database_url, SnapshotSettings(events_min=1))
        fold = await kept.load()
        await fold_on(fold, ledger, await ledger.head())
        snapshot = snapshot_of(fold, fold_anchor(fold), ledger.identity)
        assert await Snapshots(layout_of(projection, fold.state), ledger, servers.database_url).write(snapshot)
        objects = open_objects(tmp_path.joinpath("objects").as_uri())
        backend = Backend(ledger, servers.database_url, servers.nats_url, None, objects_url=objects.url)
        taken = await take(backend, ["devices"], also_last=True)
        assert taken.snapshots == 1
        await close_at(servers, location)
    async with opened(servers) as ledger:
        await publish(ledger, failures(range(MORE, 2 * MORE)))
        found = await KeptFold(projection, ledger, servers.database_url).load()
        assert (found.generation, found.sequence) == (1, MORE - 1)
        await fold_on(found, ledger, await ledger.head())
        assert (found.generation, found.events) == (2, MORE + 1)
        past = await FoldSnapshots(objects, ledger, pytest.fail).load(projection, await ledger.head(), [])
        assert past is not None
        assert past.manifest.at == Position(1, MORE - 1)
        await fold_on(past.fold, ledger, await ledger.head())
        assert past.fold.state.tables()["device"].rows == found.state.tables()["device"].rows
        snapshots = FoldSnapshots(objects, ledger, pytest.fail)
        result = await rebuild(projection, ledger, servers.database_url, snapshots=snapshots)
        assert (result.since, result.checkpoint.at) == (MORE - 1, ledger.generations.position(await ledger.head()))
        await assert_true(ledger, servers.database_url, [projection])
        backend = Backend(ledger, servers.database_url, servers.nats_url, None, objects_url=objects.url)
        assert (await take(backend, ["devices"], also_last=True)).snapshots == 1
        assert [one.at.generation for one in await stored(backend, ["devices"])] == [2, 1]


def fold_anchor(fold: Fold) -> Anchor:
    assert fold.anchor is not None
    return fold.anchor


LIVES = (
    "s1,c0,2017-01-01 00:00:00,2017-01-03 00:00:00,172800,TRUE,DBE",
    "s2,c0,2017-01-03 00:00:00,2017-01-09 00:00:00,518400,FALSE,",
    "s3,c1,2017-01-02 00:00:00,2017-01-05 00:00:00,259200,TRUE,OTB",
    "s1,c0,,2017-01-02 00:00:00,,,OTB",
)


@pytest.mark.parametrize("partitions", [1, pytest.param(4, marks=pytest.mark.long)])
async def test_a_drill_records_closes_deletes_rebuilds_and_restores(
    servers: Servers, location: str, tmp_path: Path, cli: Run
) -> None:
    """Titan's lives, in two generations: the same rows, the same reports, and a month that is given back."""
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    write(first, TITAN_HEADER, *LIVES[:2])
    write(second, TITAN_HEADER, *LIVES[2:])
    assert (await cli("import", "titan", str(first))).code == 0
    assert (await cli("log", "archive", "close", location, "--yes")).code == 0
    assert (await cli("import", "titan", str(second))).code == 0
    assert (await cli("import", "titan", str(first))).code == 0
    fleet, timeline = await cli("report", "fleet", "-o", "json"), await cli("timeline", "device", "s1", "-o", "json")
    served = rows_of(servers.database_url)
    assert (await cli("log", "archive", "delete-stream", location, "1", "--yes")).code == 0
    replayed = await cli("replay")
    assert replayed.code == 0, replayed.err
    assert rows_of(servers.database_url) == served
    assert (await cli("report", "fleet", "-o", "json")).json() == fleet.json()
    assert (await cli("timeline", "device", "s1", "-o", "json")).json() == timeline.json()
    assert {one["position"].partition("/")[0] for one in timeline.json() if one["position"]} == {"1", "2"}
    (month,) = {row["month"] for row in (await cli("log", "archive", "list", location, "-o", "json")).json()}
    given_back, exported = tmp_path / "month.jsonl", tmp_path / "whole.jsonl"
    export = ("log", "archive", "export", location, str(given_back), "--month", month, "--generation", "1")
    assert (await cli(*export)).code == 0
    assert (await cli("log", "export", str(exported))).code == 0
    months, whole = list(messages(given_back)), list(messages(exported))
    assert whole[: len(months)] == months
    assert read_header(exported).generations.begun == ((1, 0), (2, len(months)))
    restored = await cli("log", "import", str(exported), "--yes")
    assert restored.code == 0, restored.err
    assert (await cli("report", "fleet", "-o", "json")).json() == fleet.json()
