"""The `watchers` service as it runs, and the events that it records, as lines."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import aclosing, asynccontextmanager

from prometheus_client import REGISTRY

from gpuledger.db.locks import LockCheck
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.watchers.checked_namespaces import CheckedNamespaces
from gpuledger.edge.watchers.decide import AnyKind
from gpuledger.edge.watchers.service import run
from gpuledger.edge.watchers.watcher import WatcherSettings
from gpuledger.events.envelope import decode
from gpuledger.ledger.api import Ledger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.runtime.backoff import Backoff
from support.ledgers import everything
from support.projections import stop
from support.waiting import eventually

HASTY = WatcherSettings(
    components_namespace="default",
    checked=CheckedNamespaces(frozenset({"default"})),
    audit_interval_s=0.1,
    first_list_s=2.0,
    lock_check=LockCheck(interval_s=0.05),
    backoff=Backoff(first_s=0.02, max_s=0.2),
)


@asynccontextmanager
async def watching(
    client: KubeClient,
    ledger: Ledger,
    url: str,
    followed: FollowedLog | None = None,
    settings: WatcherSettings = HASTY,
) -> AsyncIterator[asyncio.Task[None]]:
    """The service, as it runs; where `followed` is not given, no rows have to follow the ledger."""
    async with aclosing(followed or FollowedLog((), ledger, url)) as log:
        task = asyncio.create_task(run(client, ledger, url, log, settings=settings))
        try:
            yield task
            assert not task.done() or task.result()
        finally:
            await stop(task)


async def recorded_of(kinds: Collection[AnyKind], ledger: Ledger) -> list[str]:
    """The recorded events of these kinds, as lines."""
    sources = {kind.source for kind in kinds}
    events = [decode(message.data) for message in await everything(ledger)]
    return [f"{one.data.AGGREGATE} {one.subject} {one.data.EVENT}" for one in events if one.source in sources]


async def comes_of(kinds: Collection[AnyKind], ledger: Ledger, *words: str) -> None:
    """Return when exactly this was recorded: kinds in any order, events of one subject in theirs."""

    async def is_recorded() -> bool:
        return sorted(await recorded_of(kinds, ledger)) == sorted(words)

    try:
        await eventually(is_recorded)
    except TimeoutError as error:
        found, expected = Counter(await recorded_of(kinds, ledger)), Counter(words)
        raise AssertionError(f"too many: {found - expected}, too few: {expected - found}") from error
    for subject in {_about(one) for one in words}:
        in_order = [one for one in await recorded_of(kinds, ledger) if _about(one) == subject]
        assert in_order == [one for one in words if _about(one) == subject]


def lists(kind: AnyKind) -> float:
    """How many complete lists of the kind were compared so far."""
    return REGISTRY.get_sample_value("gpuledger_watcher_lists_total", {"watcher": kind.name}) or 0.0


async def listed_again(kinds: Collection[AnyKind], before: Collection[float]) -> None:
    """Return when each kind was listed once more than before."""

    async def is_so() -> bool:
        return all(lists(kind) > count for kind, count in zip(kinds, before, strict=True))

    await eventually(is_so)


def _about(word: str) -> str:
    return word.rpartition(" ")[0]
