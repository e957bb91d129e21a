"""Random walks over binds, deletions, lost nodes, sick cards and killed extenders: no card is ever oversold."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from random import Random

import aiohttp
import pytest

from gpuledger.api.kinds import PODS
from gpuledger.domain.sharing.annotation import read_allocation
from gpuledger.domain.sharing.texts import allocation_of
from gpuledger.edge.extender.service import Extender, ExtenderLeadership
from gpuledger.edge.extender.settlement import amounts_in
from gpuledger.edge.kube.client import Object
from gpuledger.events.node import NodeGone
from gpuledger.projection.followed_log import FollowedLog
from support.extending import (
    GIB,
    NAMES,
    RESTARTED,
    WATCHERS,
    Scheduler,
    SharingCluster,
    folded_extender,
    is_ready,
    scheduling,
)
from support.killing import KilledError, SteppingClient, SteppingLedger, Steps
from support.projections import stop
from support.waiting import eventually

NODES = {"n1": 2, "n2": 1}
TOTALS = {"gpu-core": 100, "gpu-memory-ratio": 100, "gpu-memory": 16 * GIB}
ASKS = ({"gpu": 50}, {"gpu": 30}, {"gpu": 100}, {"gpu_core": 20, "gpu_memory": "12Gi"}, {"gpu_memory_ratio": 60})
LIVES, MANY_LIVES, ACTS_MAX, AT_ONCE_MAX = 5, 15, 5, 4
FIRST_KILL, LAST_KILL = 3, 45

Act = Callable[[], Awaitable[None]]


class Walk:
    """What users, watchers, nodes and the scheduler do, by chance."""

    def __init__(self, sharing: SharingCluster, draw: Random) -> None:
        self._sharing = sharing
        self._draw = draw
        self._pods: dict[str, Object] = {}
        self._number = 0

    async def act(self, scheduler: Scheduler) -> None:
        """Do one thing."""
        acts: list[Act] = [
            *[lambda: self._come(scheduler)] * 3, self._go, self._observe, self._report,
            self._lose,
        ]  # fmt: skip
        await self._draw.choice(acts)()

    async def report_all(self) -> None:
        """All nodes report their cards, which are well."""
        for node, cards in NODES.items():
            await self._sharing.share(node, cards)

    async def _come(self, scheduler: Scheduler) -> None:
        """Some pods come, and the scheduler binds them at once, to where they seemed to fit, or anywhere."""
        pods = []
        for _ in range(self._draw.randint(1, AT_ONCE_MAX)):
            self._number += 1
            pod = await self._sharing.create(f"p{self._number}", **self._draw.choice(ASKS))
            self._pods[f"p{self._number}"] = pod
            pods.append(pod)
        again = self._draw.sample(sorted(self._pods), min(2, len(self._pods)))
        pods += [self._pods[name] for name in again]
        await asyncio.gather(*(self._schedule(scheduler, pod, self._draw.choice(list(NODES))) for pod in pods))

    async def _schedule(self, scheduler: Scheduler, pod: Object, anywhere: str) -> None:
        fits = (await scheduler.filter(pod, *NODES))["NodeNames"]
        await scheduler.bind(pod, fits[0] if fits else anywhere)

    async def _go(self) -> None:
        if self._pods:
            await self._sharing.delete(self._pods.pop(self._draw.choice(sorted(self._pods))))

    async def _observe(self) -> None:
        for pod in self._pods.values():
            await self._sharing.observe(pod, started=self._draw.random() < 0.5)

    async def _report(self) -> None:
        node = self._draw.choice(list(NODES))
        await self._sharing.share(node, NODES[node], unhealthy=frozenset({0} if self._draw.random() < 0.5 else ()))

    async def _lose(self) -> None:
        await self._sharing.record(WATCHERS, self._draw.choice(list(NODES)), NodeGone())


async def live(sharing: SharingCluster, url: str, client: SteppingClient, walk: Walk, draw: Random) -> None:
    """One extender's life, which may be cut off at any step."""
    steps = Steps(draw.randint(FIRST_KILL, LAST_KILL))
    stepping = SteppingLedger(sharing.ledger, steps)
    client.steps = steps
    async with aclosing(FollowedLog((), stepping, url)) as followed, aiohttp.ClientSession() as session:
        found = Extender(ExtenderLeadership(stepping, url, client, followed, settings=RESTARTED), RESTARTED)
        running = asyncio.create_task(found.run())
        acting = asyncio.create_task(_act(found, session, walk, draw))
        try:
            await asyncio.wait([running, acting], return_when=asyncio.FIRST_COMPLETED)
            if acting.done() and not steps.has_killed:
                acting.result()
        finally:
            with suppress(Exception, asyncio.CancelledError):
                await stop(acting)
            with suppress(KilledError, asyncio.CancelledError):
                await stop(running)
            client.steps = Steps()


async def _act(found: Extender, session: aiohttp.ClientSession, walk: Walk, draw: Random) -> None:
    await eventually(lambda: is_ready(found))
    scheduler = Scheduler(session, await found.url())
    for _ in range(draw.randint(1, ACTS_MAX)):
        await walk.act(scheduler)


async def check(sharing: SharingCluster) -> None:
    """No card of the cluster is oversold, as the annotations of the pods on its node say."""
    held: dict[tuple[str, str, int], Counter[str]] = {}
    for pod in (await sharing.client.list(PODS)).items:
        node, text = pod["spec"].get("nodeName"), (pod["metadata"].get("annotations") or {}).get(NAMES.allocated)
        if node is None or text is None:
            continue
        for (kind, minor), amounts in amounts_in(read_allocation(text, NAMES)).items():
            held.setdefault((node, kind, minor), Counter()).update(amounts)
    oversold = {card: used for card, used in held.items() if any(used[name] > TOTALS[name] for name in used)}
    assert oversold == {}


async def agree(sharing: SharingCluster) -> None:
    """The annotation of each pod is what the ledger has of it, and only bound pods have one."""
    state = await folded_extender(sharing.ledger)
    for pod in (await sharing.client.list(PODS)).items:
        node, text = pod["spec"].get("nodeName"), (pod["metadata"].get("annotations") or {}).get(NAMES.allocated)
        assert (node is None) is (text is None), pod
        uid = pod["metadata"]["uid"]
        row = state.pod(uid)
        if text is None:
            assert row is None or row.allocation == "{}", row
        else:
            assert row is not None
            assert row.node == node
            assert amounts_in(read_allocation(text, NAMES)) == amounts_in(allocation_of(row.allocation))


async def walk_at_random(sharing: SharingCluster, url: str, client: SteppingClient, seed: int, lives: int) -> None:
    draw = Random(seed)
    walk = Walk(sharing, draw)
    await walk.report_all()
    for _ in range(lives):
        await live(sharing, url, client, walk, draw)
        await check(sharing)
        await walk.report_all()
    async with scheduling(sharing.ledger, url, client, RESTARTED) as scheduler:

        async def nothing_is_open() -> bool:
            return not (await folded_extender(sharing.ledger)).open_reservation.rows

        await eventually(nothing_is_open)
        await check(sharing)
        await agree(sharing)
        for _ in range(ACTS_MAX):
            await walk.act(scheduler)
    await check(sharing)
    kinds = Counter(type(one).__name__ for one in await sharing.outcomes())
    assert kinds["PodDevicesBound"] > 0, kinds
    assert kinds["PodDevicesReleased"] + kinds["PodDevicesBound"] <= kinds["PodDevicesReserved"] + lives, kinds


@pytest.mark.parametrize("seed", range(2))
async def test_no_walk_oversells_a_card(
    sharing: SharingCluster, migrated_url: str, writing: SteppingClient, seed: int
) -> None:
    await walk_at_random(sharing, migrated_url, writing, seed, LIVES)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 14))
async def test_no_longer_walk_oversells_a_card(
    sharing: SharingCluster, migrated_url: str, writing: SteppingClient, seed: int
) -> None:
    await walk_at_random(sharing, migrated_url, writing, seed, MANY_LIVES)
