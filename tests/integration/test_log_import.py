"""`gpuledger log import` beside whoever publishes, and after it was interrupted: nobody's events get in between."""

import asyncio
from pathlib import Path

import nats
import pytest
from nats.js.errors import NoStreamResponseError

from gpuledger.db.engine import connect
from gpuledger.db.locks import lock_key, try_lock
from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.envelope import encode
from gpuledger.events.position import is_same
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import PermissionDeniedError, RestoreInterruptedError
from gpuledger.ledger.intake import SUBJECT_BYTES_MAX
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.ledger.partitions import in_partition, partition_of
from gpuledger.ledger.permissions import Role
from gpuledger.ledger.stream import archive_subject
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.runner import Runner, writer_lock
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.settings import Servers
from gpuledger.tools import log_restore
from gpuledger.tools.errors import ToolBusyError, ToolError
from gpuledger.tools.log_archive import messages, read_header
from gpuledger.tools.log_restore import restore_log, with_recorded_time
from gpuledger.tools.preparation import prepare_ledger
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.reporting import SILENT
from support.ledgers import DEADLINE_S, everything, new_ledger, publish_raw, run_partitions
from support.log_imports import Watched, bring_back, export, exported, recorded
from support.projections import QUICK, assert_true, execute, publish, reaches, running
from support.roles import ADMIN, role_server, url_of
from support.runners import failures
from support.waiting import eventually

EVENTS = 200
CHUNK = 50
SUBJECT = "ledger.node.n1.device.d.seen"
FEW = (SourcesProjection(), SealsProjection(), DevicesProjection())
ALSO_4 = pytest.mark.parametrize("partitions", [1, 4])


class PowerFailureError(Exception):
    """What ends an import in the middle."""


@pytest.fixture(autouse=True)
def few_projections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two deciders and a read model; tests of the command line restore the rows of all."""
    monkeypatch.setattr(log_restore, "all_projections", lambda: FEW)


@pytest.fixture
def servers(clean_nats_url: str, url: str) -> Servers:
    return Servers(clean_nats_url, url)


@pytest.fixture
def partitions() -> int:
    """How many the ledger has, where a test is not parametrized by it."""
    return run_partitions()


@pytest.fixture
async def archive(servers: Servers, partitions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An export of a ledger that is still there, with a skipped position in it."""
    monkeypatch.setattr(log_restore, "MESSAGES_PER_PUBLISH", CHUNK)
    return await exported(servers, tmp_path / "log.jsonl", EVENTS, partitions)


@ALSO_4
async def test_what_others_publish_meanwhile_comes_behind_the_restored_log(
    servers: Servers, archive: Path, partitions: int
) -> None:
    before = await recorded(servers)
    client = await nats.connect(servers.nats_url)
    subject, refused = in_partition(SUBJECT, partition_of(SUBJECT, partitions), partitions), 0

    async def other() -> None:
        """Publish one event, as often as it takes."""
        nonlocal refused
        while True:
            try:
                await client.jetstream().publish(subject, b"{}", timeout=DEADLINE_S)
            except NoStreamResponseError:
                refused += 1
            else:
                return

    publishing: list[asyncio.Task[None]] = []
    restored = await bring_back(
        servers, archive, Watched(lambda _done: publishing.append(asyncio.create_task(other())))
    )
    await asyncio.gather(*publishing)
    await client.close()
    async with connect_ledger(servers.nats_url, name="test", puts_in_order=True) as ledger:
        await eventually(lambda: _holds(ledger, EVENTS + 1 + len(publishing)))
    after = await recorded(servers)
    assert restored == (2, EVENTS, 1)
    assert refused > 0
    assert after[:EVENTS] == before
    assert after[EVENTS][0].endswith(".position-skipped")
    assert [subject for subject, _ in after[EVENTS + 1 :]] == [SUBJECT] * len(publishing)


@ALSO_4
@pytest.mark.parametrize("stops_at", [CHUNK, EVENTS], ids=["in the events", "behind the events"])
async def test_an_interrupted_import_is_named_and_goes_on_where_it_stopped(
    stops_at: int, servers: Servers, archive: Path, partitions: int
) -> None:
    before = await recorded(servers)

    def fail(done: int) -> None:
        if done == stops_at:
            raise PowerFailureError

    with pytest.raises(PowerFailureError):
        await bring_back(servers, archive, Watched(fail))
    count = rf"has {stops_at} events, and " if partitions == 1 else ""
    words = (
        rf"Generation 2 at .* it {count}takes no .* `gpuledger log import`, or run it again with the same file: it goes"
    )
    with pytest.raises(RestoreInterruptedError, match=words):
        async with connect_ledger(servers.nats_url, name="test"):
            pass
    with pytest.raises(RestoreInterruptedError, match=words):
        await prepare_ledger(servers.nats_url, servers.database_url)
    steps: list[int] = []
    assert await bring_back(servers, archive, Watched(steps.append)) == (2, EVENTS, 1)
    assert steps[0] == stops_at, "what is there is not recorded again"
    after = await recorded(servers)
    assert after[:EVENTS] == before
    assert len(after) == EVENTS + 1


@ALSO_4
async def test_an_import_that_was_interrupted_at_its_end_repeats_no_skip(
    servers: Servers, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise PowerFailureError

    with monkeypatch.context() as patched:
        patched.setattr(log_restore, "end_restore", fail)
        with pytest.raises(PowerFailureError):
            await bring_back(servers, archive)
    assert await bring_back(servers, archive) == (2, EVENTS, 1)
    assert len(await recorded(servers)) == EVENTS + 1


@pytest.mark.one_stream("alters the stream")
async def test_a_generation_that_was_begun_halfway_is_completed_by_the_import_alone(
    servers: Servers, archive: Path
) -> None:
    """As after a crash between the end of one generation and the beginning of the next."""
    async with connected(servers.nats_url, name="test") as connection:
        info = await connection.jetstream.stream_info("LEDGER_1")
        ledger_id = (info.config.metadata or {})["gpuledger.io/ledger-id"]
        await connection.jetstream.update_stream(info.config.evolve(subjects=[archive_subject(1)]))
    with pytest.raises(RestoreInterruptedError, match="a restore was interrupted"):
        await prepare_ledger(servers.nats_url, servers.database_url)
    questions: list[str] = []
    assert await restore_log(servers, SILENT, archive, read_header(archive), questions.append) == (2, EVENTS, 1)
    assert questions == [f"The ledger holds {EVENTS} events: keep them as generation 1, and go on anew?"]
    async with connect_ledger(servers.nats_url, name="test") as ledger:
        assert (ledger.generation, ledger.identity.ledger_id) == (2, ledger_id)


@ALSO_4
async def test_another_file_does_not_go_on_with_it(servers: Servers, archive: Path, tmp_path: Path) -> None:
    async with new_ledger(servers.nats_url) as ledger:
        await publish(ledger, failures(range(EVENTS, EVENTS + 2)))
        await export(ledger, tmp_path / "other.jsonl")

    def fail(done: int) -> None:
        raise PowerFailureError

    with pytest.raises(PowerFailureError):
        await bring_back(servers, archive, Watched(fail))
    with pytest.raises(RestoreInterruptedError, match=r"being restored from another file, and has 0 of its events"):
        await bring_back(servers, tmp_path / "other.jsonl")


@ALSO_4
@pytest.mark.parametrize("into", [1, 4])
async def test_an_empty_ledger_is_filled_as_it_was(
    servers: Servers, archive: Path, fresh_nats: NatsServer, migrated_url: str, into: int
) -> None:
    before = await recorded(servers)
    empty = Servers(fresh_nats.url, migrated_url)
    await prepare_ledger(empty.nats_url, empty.database_url, partitions=into)
    assert await bring_back(empty, archive) == (1, EVENTS, 0)
    assert await recorded(empty) == before
    async with connect_ledger(empty.nats_url, name="test") as ledger:
        assert ledger.partitions == into
        restored = await everything(ledger)
        assert [one.data for one in restored] == [with_recorded_time(one) for one in messages(archive)]
        await assert_true(ledger, empty.database_url, FEW)


@ALSO_4
async def test_the_restorers_permissions_are_enough_and_the_operators_are_not(
    servers: Servers, archive: Path, migrated_url: str, partitions: int
) -> None:
    """Also to archive what is there, with what its partitions hold that is not in the log."""
    before = await recorded(servers)
    with role_server() as server:
        admin = Servers(url_of(server, ADMIN), migrated_url)
        await prepare_ledger(url_of(server, Role.OPERATOR), migrated_url, partitions=partitions)
        with pytest.raises(PermissionDeniedError, match=r"publish to restoring\.1\."):
            await bring_back(Servers(url_of(server, Role.OPERATOR), migrated_url), archive)
        restorer = Servers(url_of(server, Role.RESTORER), migrated_url)
        assert await bring_back(restorer, archive) == (1, EVENTS, 0)
        assert await recorded(admin) == before
        publish_raw(admin.nats_url, SUBJECT.encode(), b"{}", partitions)
        assert await bring_back(restorer, archive) == (2, EVENTS, 1)
        async with connect_ledger(admin.nats_url, name="test", generation=1) as archived:
            assert await archived.head() == EVENTS + 1


async def test_no_projection_is_written_while_the_log_is_restored(servers: Servers, archive: Path) -> None:
    lock = writer_lock(SourcesProjection().name)
    got: list[bool] = []

    def look(_done: int) -> None:
        """Right now, because the restore goes on as soon as it can."""
        ((is_free,),) = execute(servers.database_url, "SELECT pg_try_advisory_lock(%s)", lock_key(lock))
        got.append(is_free)

    await bring_back(servers, archive, Watched(look))
    assert got[0] is False
    async with connect(servers.database_url, application_name="test") as connection:
        assert await try_lock(connection, lock)
        with pytest.raises(ToolBusyError, match="is being written by another process"):
            await bring_back(servers, archive)


async def test_a_decider_that_starts_as_soon_as_the_log_is_complete_keeps_what_it_decided(
    servers: Servers, archive: Path, fresh_nats: NatsServer, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a pod that restarts at the end of an import."""
    decider = "SELECT * FROM gpuledger.decider WHERE projection = 'sources'"
    empty = Servers(fresh_nats.url, migrated_url)
    await prepare_ledger(empty.nats_url, empty.database_url)
    project, led = log_restore._project, list[object]()

    async def led_meanwhile(backend: Backend) -> None:
        async with running(Runner(SourcesProjection(), backend.ledger, migrated_url, settings=QUICK)):
            await reaches(migrated_url, "sources", EVENTS)
        led.extend(execute(migrated_url, decider))
        await project(backend)

    monkeypatch.setattr(log_restore, "_project", led_meanwhile)
    assert await bring_back(empty, archive) == (1, EVENTS, 0)
    (row,) = led
    assert execute(migrated_url, decider) == [row]


async def test_whatever_an_agent_recorded_is_restored(servers: Servers, tmp_path: Path) -> None:
    """Also what can be read and not written again: what nests too deeply."""
    data = encode(failures(range(1, 2))[0]).removesuffix(b"}") + b',"x":' + b"[" * 300 + b"]" * 300 + b"}"
    async with new_ledger(servers.nats_url) as ledger:
        await ledger.publish(Outgoing(SUBJECT, "nested", data))
        await export(ledger, tmp_path / "log.jsonl")
    assert await bring_back(servers, tmp_path / "log.jsonl") == (2, 1, 0)
    assert [subject for subject, _ in await recorded(servers)] == [SUBJECT]


async def test_a_subject_that_fills_a_line_keeps_nothing_from_being_restored(servers: Servers, tmp_path: Path) -> None:
    """An agent can record one, because it needs no answer."""
    subjects = [f"{SUBJECT}.{'x' * 4050}", f"{SUBJECT}.{'y.' * 2025}y", SUBJECT]
    client = await nats.connect(servers.nats_url)
    async with new_ledger(servers.nats_url) as ledger:
        for subject in subjects:
            await client.publish(subject, b"{}")
        await client.flush()
        await eventually(lambda: _holds(ledger, len(subjects)))
        await export(ledger, tmp_path / "log.jsonl")
    await client.close()
    assert await bring_back(servers, tmp_path / "log.jsonl") == (2, len(subjects), 0)
    after = [subject for subject, _ in await recorded(servers)]
    assert all(subject.startswith(cut) for subject, cut in zip(subjects, after, strict=True))
    assert [len(cut) > SUBJECT_BYTES_MAX - 20 for cut in after] == [True, True, False]
    assert after[2] == SUBJECT


async def _holds(ledger: Ledger, count: int) -> bool:
    return is_same(await ledger.head(), count)


async def test_what_is_too_large_for_the_server_is_named_before_anything_is_begun(
    servers: Servers, tmp_path: Path
) -> None:
    """An agent can record more than gpuledger would."""
    client = await nats.connect(servers.nats_url)
    async with new_ledger(servers.nats_url) as ledger:
        await client.jetstream().publish(SUBJECT, b"x" * (ledger.message_bytes_max + 2))
        await client.jetstream().publish(SUBJECT, b"x" * (ledger.message_bytes_max + 1))
        await export(ledger, tmp_path / "log.jsonl")
    with pytest.raises(ToolError, match=rf"event at 1 of .* at least {client.max_payload + 2}, and import again"):
        await bring_back(servers, tmp_path / "log.jsonl")
    await client.close()
    async with connect_ledger(servers.nats_url, name="test") as ledger:
        assert ledger.generation == 1
