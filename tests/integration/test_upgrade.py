"""Two real builds side by side, on one NATS and one PostgreSQL: the wheel of an earlier commit, and a newer one.

The newer build is this tree with two more versions raised: that of a read model, whose rows it makes otherwise, and
that of a decider; it brings no new rule into force. Events are recorded all the while.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from gpuledger.db.locks import try_hold
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.envelope import decode
from gpuledger.events.source import SourceRejected
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.postgres import PostgresServer
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools.queries.backend import all_projections
from support import builds
from support.builds import Build, Change
from support.events import IMPORT
from support.ledgers import everything, new_ledger
from support.projections import execute, publish, reaches, stop
from support.runners import failures, unfit
from support.up import Up
from support.waiting import eventually

pytestmark = pytest.mark.long

STOPS = "fd4dc9ad"
"""A build that knows nothing of others: where it would lead rows of a newer one it stops; it goes on with the rest."""

STANDS_ASIDE = "25a83bc5"
"""The first build that leaves newer rows to the newer build."""

RAISED = (DevicesProjection, SourcesProjection)
NEWER = (
    Change(
        "services/gpuledger/readmodels/projections.py",
        r'(name = "devices"\n    version = )\d+',
        rf"\g<1>{DevicesProjection.version + 1}",
    ),
    Change(
        "services/gpuledger/domain/devices/fold.py",
        r"(Failure\(event.id, event.subject, data.slot, data.kind),",
        r"\g<1>.lower(),",
    ),
    Change(
        "services/gpuledger/deciders/sources/projection.py",
        r"    version = \d+",
        f"    version = {SourcesProjection.version + 1}",
    ),
    # A build stops at a rule that it does not know, which is another story.
    Change("services/gpuledger/projection/supervision.py", r"rules=tuple\(Rule\)", "rules=()"),
    # It asks more often than once in half a minute whether the test still holds its builds up.
    Change("services/gpuledger/projection/upgrading.py", r"max_s=30\.0", "max_s=1.0"),
)

BATCH = 20


class Recording:
    """Records failures of devices, and an unfit event of a node with each batch, as fast as rows take them."""

    def __init__(self, ledger: JetStreamLedger, url: str) -> None:
        self.unfit = self.fit = 0
        self._ledger = ledger
        self._url = url
        self._firsts = itertools.count(1, BATCH)
        self._ends = False

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Record batch after batch within the block."""
        self._ends = False
        task = asyncio.create_task(self._run())
        try:
            yield
            self._ends = True
            await task
        finally:
            await stop(task)

    async def _run(self) -> None:
        while not self._ends:
            first = next(self._firsts)
            await publish(self._ledger, failures(range(first, first + BATCH), IMPORT))
            recorded = await self._ledger.publish(unfit(1, f"/nodes/n{first}/agent"))
            self.fit, self.unfit = self.fit + BATCH, self.unfit + 1
            await reaches(self._url, "nodes", recorded.sequence)


def states(up: Up) -> dict[str, str]:
    """The state of each projection."""
    projections = up.health().document["projections"]
    assert isinstance(projections, dict)
    return {name: found["state"] for name, found in projections.items()}


async def becomes(up: Up, expected: Mapping[str, str], *, healthy: bool = True) -> None:
    """Return when these projections have these states."""

    async def has_become() -> bool:
        found = await asyncio.to_thread(states, up)
        status = (await asyncio.to_thread(up.health)).status
        return expected.items() <= found.items() and (status == 200) == healthy

    await eventually(has_become, interval_s=0.2)


async def move(ledger: JetStreamLedger, url: str, projections: Iterable[str]) -> None:
    """Return when rows have taken what was recorded from now on."""
    head = await ledger.head()

    async def has_grown() -> bool:
        return await ledger.head() != head

    await eventually(has_grown)
    for name in projections:
        await reaches(url, name, await ledger.head())


async def started(stack: AsyncExitStack, build: Build) -> Up:
    """The build's `up`, until the stack ends; everything else goes on while it starts."""
    up = build.up()
    found = await asyncio.to_thread(up.__enter__)
    stack.push(up.__exit__)
    return found


async def version_becomes(url: str, name: str, version: int) -> None:
    """Return when the rows of a projection that serve have this version."""

    async def has_become() -> bool:
        return versions(url)[name] == version

    await eventually(has_become)


def built_versions(before: Mapping[str, int]) -> dict[str, int]:
    """The versions of rows that the newer build makes; those that it takes over stay while the older one leads."""
    found = [one for one in all_projections() if type(one) in RAISED or not one.takes_over(before.get(one.name, 0))]
    return {one.name: one.version + (type(one) in RAISED) for one in found}


def versions(url: str) -> dict[str, int]:
    """The versions of the rows that serve."""
    return dict(execute(url, "SELECT name, version FROM gpuledger.projection WHERE edition = 'live'"))


async def assert_true(ledger: JetStreamLedger, url: str, projections: Iterable[str], events: Recording) -> None:
    """Nothing is lost, and every unfit event was rejected once, by whichever build."""

    async def has_rejected() -> bool:
        return len(await rejected(ledger)) >= events.unfit

    await eventually(has_rejected)
    for name in projections:
        await reaches(url, name, await ledger.head())
    found = await rejected(ledger)
    assert len(found) == len(set(found)) == events.unfit
    assert execute(url, "SELECT count(*) FROM gpuledger_live.failure") == [(events.fit,)]
    assert not execute(url, "SELECT id FROM gpuledger.outbox WHERE projection = 'sources'")


async def rejected(ledger: JetStreamLedger) -> list[object]:
    """The positions of events that were recorded as rejected."""
    decisions = [decode(one.data) for one in await everything(ledger, subject_filter="ledger.svc.sources.>")]
    return [one.data.sequence for one in decisions if isinstance(one.data, SourceRejected)]


VERIFY = """
import asyncio, os
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.verify import verify
from gpuledger.tools.queries.backend import all_projections

async def main():
    async with connect_ledger(os.environ["NATS_URL"], name="verify") as ledger:
        for projection in all_projections():
            found = await verify(projection, ledger, os.environ["DATABASE_URL"])
            assert found.differences == 0, found

asyncio.run(main())
"""
"""`gpuledger verify`, without the check of the schema: these builds started before a newer one migrated it."""


def assert_clean(build: Build) -> None:
    """The build finds no row that differs from its own fold of the log."""
    verified = build.python(VERIFY)
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.parametrize(("commit", "state"), [(STOPS, "stopped"), (STANDS_ASIDE, "superseded")])
async def test_an_upgrade_and_a_rollback_beside_events(
    fresh_nats: NatsServer, fresh_postgres: PostgresServer, tmp_path: Path, commit: str, state: str
) -> None:
    url, servers = fresh_postgres.url, {"NATS_URL": fresh_nats.url, "DATABASE_URL": fresh_postgres.url}
    old = builds.of_commit(commit, tmp_path, servers)
    newer = builds.of_this_tree(tmp_path, servers, NEWER)
    async with AsyncExitStack() as stack:
        old_up = await started(stack, old)
        await becomes(old_up, {})
        before = versions(url)
        after = before | built_versions(before)
        raised = [name for name in before if after[name] != before[name]]
        ledger = await stack.enter_async_context(new_ledger(fresh_nats.url))
        events = Recording(ledger, url)
        async with AsyncExitStack() as while_newer_runs:
            async with events.going_on():
                holding = await while_newer_runs.enter_async_context(
                    await psycopg.AsyncConnection.connect(url, autocommit=True)
                )
                for name in raised:
                    assert await try_hold(holding, f"rebuild:{name}") is not None
                newer_up = await started(while_newer_runs, newer)
                await becomes(newer_up, dict.fromkeys(raised, "building"), healthy=False)
                await move(ledger, url, before)
                assert versions(url).items() >= before.items()  # a projection that is new serves at once
                await becomes(old_up, dict.fromkeys(before, "running"))
                await holding.close()
                for name in raised:  # one after the other is built
                    await version_becomes(url, name, after[name])
                await becomes(newer_up, dict.fromkeys(raised, "running"))
                if state == "superseded":
                    await becomes(old_up, dict.fromkeys(raised, state))
                others = {name: found for name, found in states(old_up).items() if name not in raised}
                assert set(others.values()) == {"running"}
                assert versions(url) == after
                await move(ledger, url, before)
            await assert_true(ledger, url, before, events)
            assert {kind for (kind,) in execute(url, "SELECT kind FROM gpuledger_live.failure")} == {"dbe"}
            await asyncio.to_thread(assert_clean, newer)
        async with events.going_on():
            await becomes(old_up, dict.fromkeys(raised, state), healthy=state != "stopped")
            rolled_back = await asyncio.to_thread(newer.run, "replay", "--rollback", *raised)
            assert rolled_back.returncode == 0, rolled_back.stderr
            assert versions(url).items() >= before.items()  # a projection that is new serves at once
            await becomes(old_up, dict.fromkeys(before, "running"))
            await move(ledger, url, before)
        await assert_true(ledger, url, before, events)
        assert {kind for (kind,) in execute(url, "SELECT kind FROM gpuledger_live.failure")} == {"DBE"}
        await asyncio.to_thread(assert_clean, old)
