"""One watcher against an API server that says what a test wrote down, and a ledger in memory that fails on demand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from gpuledger.events.envelope import Event, decode, encode, nats_subject_of
from gpuledger.events.node import NodeGone, NodeObserved
from gpuledger.events.subjects import ALL
from gpuledger.kube.names import LABEL_ENABLED
from gpuledger.kube.watch import Backoff
from gpuledger.ledger.api import Outgoing, Receipt
from gpuledger.ledger.errors import LedgerUnavailableError, PublishError
from gpuledger.ledger.memory import MemoryLedger, MemoryReader
from gpuledger.watchers import nodefeatures, nodes
from gpuledger.watchers.book import Book
from gpuledger.watchers.decide import Fact, Kind
from gpuledger.watchers.tasks import first_of, ticking
from gpuledger.watchers.watcher import Surroundings, Watcher, WatcherSettings
from support.events import START, hour
from support.ledgers import eventually, everything
from support.projections import stop
from support.scripted_api import Answer, ScriptedApi, answer, event, listing, node, refuse, stream

NODES = nodes.kind(LABEL_ENABLED)
SOURCE = NODES.source
ON = stream(silent=True)


def gpu_node(name: str, product: str = "a", version: str = "1", uid: str = "u") -> dict[str, Any]:
    metadata = {"uid": uid, "labels": {"nvidia.com/gpu.product": product}}
    return {"metadata": node(name, version)["metadata"] | metadata}


async def said(ledger: MemoryLedger, epoch: bool = False) -> list[str]:
    """What stands in the ledger, in words: number, subject and what was said."""
    words = []
    for message in await everything(ledger):
        one = decode(message.data)
        told = "gone" if isinstance(one.data, NodeGone) else one.data.labels.get("nvidia.com/gpu.product", "")  # type: ignore[attr-defined]
        words.append(f"{one.epoch + ' ' if epoch else ''}{one.number} {one.subject} {told}")
    return words


class OneCluster(ScriptedApi):
    """Says which cluster it is whenever that is asked; the script is for everything else."""

    cluster: str | None = "c1"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/namespaces/kube-system"):
            return await super()._answer(request)
        if self.cluster is None:
            return await refuse(403, "Forbidden")(request)
        return await answer({"metadata": {"uid": self.cluster}})(request)


class Watch:
    """A watcher that runs, and what it waited for."""

    def __init__(self, client: Any, ledger: MemoryLedger, kind: Kind, epoch: str, audit_interval_s: float) -> None:
        self.pauses_s: list[float] = []
        self.now = START
        bounds = WatcherSettings(audit_interval_s=audit_interval_s, backoff=Backoff(first_s=1, max_s=4))
        around = Surroundings(client, self.clock, lambda: 1.0, self.sleep, bounds)
        self.watcher = Watcher(kind, Book(ledger, kind, lambda: epoch), around)

    def clock(self) -> datetime:
        return self.now

    async def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        await asyncio.sleep(0)


@asynccontextmanager
async def watching(
    ledger: MemoryLedger,
    *answers: Answer,
    kind: Kind = NODES,
    epoch: str = "e",
    audit_interval_s: float = 60.0,
) -> AsyncIterator[tuple[Watch, OneCluster]]:
    api = OneCluster(*answers)
    async with api.serving() as client:
        watch = Watch(client, ledger, kind, epoch, audit_interval_s)
        task = asyncio.create_task(watch.watcher.run())
        try:
            yield watch, api
        finally:
            await stop(task)


async def comes(ledger: MemoryLedger, *words: str) -> None:
    """Return when the ledger says this, and nothing else."""
    try:
        async with asyncio.timeout(10):
            while await said(ledger) != list(words):  # noqa: ASYNC110 - the condition is in the ledger
                await asyncio.sleep(0.01)
    except TimeoutError:
        assert await said(ledger) == list(words)


async def asked(api: ScriptedApi, count: int) -> None:
    async def so_often() -> bool:
        return len(api.asked) >= count

    await eventually(so_often)


async def test_a_list_then_every_change_in_its_order() -> None:
    ledger = MemoryLedger()
    changes = (
        event("MODIFIED", gpu_node("w1", "b", "6"))
        + event("MODIFIED", gpu_node("w1", "b", "7"))
        + event("MODIFIED", gpu_node("w1", "a", "8"))
        + event("ADDED", gpu_node("w2", "a", "9"))
        + event("DELETED", gpu_node("w2", "a", "10"))
        + event("ADDED", gpu_node("w2", "a", "11", uid="v"))
    )
    async with watching(ledger, listing(gpu_node("w1"), version="5"), stream(changes), ON):
        await comes(ledger, "1 w1 a", "2 w1 b", "3 w1 a", "4 w2 a", "5 w2 gone", "6 w2 a")
    times = [decode(message.data).time for message in await everything(ledger)]
    assert times[0] == START
    assert times[3] < times[4] < times[5]


async def test_a_restart_records_what_was_missed_and_goes_on_counting() -> None:
    ledger = MemoryLedger()
    async with watching(ledger, listing(gpu_node("w1"), gpu_node("w2"), gpu_node("w3"), version="5"), ON):
        await comes(ledger, "1 w1 a", "2 w2 a", "3 w3 a")
    missed = listing(gpu_node("w1", "b"), gpu_node("w3", uid="v"), gpu_node("w4"), version="9")
    async with watching(ledger, missed, ON, epoch="never"):
        await comes(ledger, "1 w1 a", "2 w2 a", "3 w3 a", "4 w1 b", "5 w2 gone", "6 w3 gone", "7 w3 a", "8 w4 a")
    async with watching(ledger, missed, ON) as (_, api):
        await asked(api, 2)
    assert len(await said(ledger)) == 8
    assert {one.split()[0] for one in await said(ledger, epoch=True)} == {"e"}


@pytest.mark.parametrize("gone", [refuse(410, "Expired"), stream(event("ERROR", {"code": 410, "reason": "Expired"}))])
async def test_an_expired_version_shows_what_was_deleted_meanwhile(gone: Answer) -> None:
    ledger = MemoryLedger()
    first = listing(gpu_node("w1"), gpu_node("w2"), version="5")
    async with watching(ledger, first, gone, listing(gpu_node("w1"), version="90"), ON):
        await comes(ledger, "1 w1 a", "2 w2 a", "3 w2 gone")


@pytest.mark.parametrize(
    "failure",
    [
        [refuse(500)],
        [refuse(503), refuse(503)],
        [refuse(429, "TooManyRequests")],
        [refuse(403, "Forbidden")],
        [answer("<html>", 502)],
        [answer("no JSON")],
        [listing(gpu_node("w1"), version="9", more="token"), refuse(500)],
        [listing(gpu_node("w1"), version="9", more="token"), refuse(410, "Expired"), refuse(503)],
    ],
)
async def test_a_list_that_fails_says_nothing_is_gone(failure: list[Answer]) -> None:
    ledger = MemoryLedger()
    first = listing(gpu_node("w1"), gpu_node("w2"), version="5")
    last = listing(gpu_node("w1"), gpu_node("w2"), gpu_node("w3"), version="9")
    async with watching(ledger, first, refuse(410, "Expired"), *failure, last, ON) as (watch, _):
        await comes(ledger, "1 w1 a", "2 w2 a", "3 w3 a")
    assert all(1 <= pause_s <= 4 for pause_s in watch.pauses_s)
    assert len(watch.pauses_s) >= 2


async def test_streams_that_break_lose_and_repeat_nothing() -> None:
    ledger = MemoryLedger()
    change, half = event("ADDED", gpu_node("w1", "a", "6")), event("MODIFIED", gpu_node("w1", "b", "7"))
    async with watching(ledger, listing(version="5"), stream(change, half[:20], broken=True), stream(half), ON):
        await comes(ledger, "1 w1 a", "2 w1 b")


def groups(*versions: str) -> Answer:
    return answer({"groups": [{"versions": [{"groupVersion": version} for version in versions]}]})


GONE_KIND = [
    [refuse(404, "NotFound"), groups("apps/v1")],
    [refuse(404, "NotFound"), groups("nfd.k8s-sigs.io/v1alpha1"), answer({"resources": [{"name": "others"}]})],
]
UNCLEAR = [
    [refuse(404, "NotFound"), groups("nfd.k8s-sigs.io/v1alpha1"), answer({"resources": [{"name": "nodefeatures"}]})],
    [refuse(404, "NotFound"), refuse(404, "NotFound")],
    [refuse(404, "NotFound"), refuse(503)],
]


def feature(name: str) -> dict[str, Any]:
    labels = {"nfd.node.kubernetes.io/node-name": name}
    spec = {"labels": {"nvidia.com/gpu.product": "a"}}
    return {"metadata": {"name": name, "namespace": "nfd", "labels": labels, "resourceVersion": "1"}, "spec": spec}


@pytest.mark.parametrize("answers", GONE_KIND)
async def test_a_kind_that_is_not_served_has_no_objects(answers: list[Answer]) -> None:
    ledger = MemoryLedger()
    first = [listing(feature("w1"), version="5"), refuse(410, "Expired")]
    again = [*answers, listing(feature("w1"), version="9"), ON]
    async with watching(ledger, *first, *answers, *again, kind=nodefeatures.KIND) as (watch, _):
        await eventually(lambda: has(ledger, 3))
    assert [decode(message.data).data.EVENT for message in await everything(ledger)] == [
        "features-observed",
        "features-gone",
        "features-observed",
    ]
    assert watch.watcher.looked.is_set()


@pytest.mark.parametrize("answers", UNCLEAR)
async def test_a_not_found_that_discovery_does_not_confirm_says_nothing(answers: list[Answer]) -> None:
    ledger = MemoryLedger()
    first = [listing(feature("w1"), version="5"), refuse(410, "Expired")]
    again = [listing(feature("w1"), feature("w2"), version="9"), ON]
    async with watching(ledger, *first, *answers, *again, kind=nodefeatures.KIND):
        await eventually(lambda: has(ledger, 2))
    assert [decode(message.data).subject for message in await everything(ledger)] == ["w1", "w2"]


async def has(ledger: MemoryLedger, count: int) -> bool:
    return await ledger.head() >= count


Before = Callable[["TroubledLedger", Sequence[Outgoing]], Awaitable[None]]


class TroubledLedger(MemoryLedger):
    """Does something else before it publishes; once for each thing to do."""

    def __init__(self, *troubles: Before) -> None:
        super().__init__()
        self._troubles = list(troubles)

    async def publish_many(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        if self._troubles:
            await self._troubles.pop(0)(self, messages)
        return await super().publish_many(messages)


async def refused(_ledger: TroubledLedger, _messages: Sequence[Outgoing]) -> None:
    raise PublishError("no")


async def half_recorded(ledger: TroubledLedger, messages: Sequence[Outgoing]) -> None:
    await ledger.publish(messages[0])
    raise PublishError("no")


async def unacknowledged(ledger: TroubledLedger, messages: Sequence[Outgoing]) -> None:
    for message in messages:
        await ledger.publish(message)
    raise PublishError("no")


async def first_left_out(ledger: TroubledLedger, messages: Sequence[Outgoing]) -> None:
    await ledger.publish(messages[1])
    raise PublishError("no")


@pytest.mark.parametrize("trouble", [refused, half_recorded, unacknowledged, first_left_out])
async def test_what_was_not_acknowledged_is_recorded_once(trouble: Before) -> None:
    ledger = TroubledLedger(trouble)
    whole = listing(gpu_node("w1"), gpu_node("w2"), version="5")
    async with watching(ledger, whole, whole, ON) as (watch, api):
        await asked(api, 3)
    assert sorted(await said(ledger)) == ["1 w1 a", "2 w2 a"]
    assert watch.pauses_s == [1.0]


async def test_a_ledger_that_stays_away_is_asked_less_and_less_often() -> None:
    ledger = TroubledLedger(*[refused] * 5)
    whole = listing(gpu_node("w1"), version="5")
    async with watching(ledger, *[whole] * 6, ON) as (watch, _):
        await comes(ledger, "1 w1 a")
    assert watch.pauses_s == [1.0, 2.0, 4.0, 4.0, 4.0]


async def by_another(ledger: MemoryLedger, data: NodeObserved | NodeGone, number: int, at: float = 0) -> None:
    """What an instance that lost its turn gets in late."""
    one = Event(f"late-{number}", SOURCE, data.TYPE, "w1", hour(at), data, "e", number)
    await ledger.publish(Outgoing(nats_subject_of(one), one.id, encode(one)))


async def test_a_number_that_somebody_else_used_meanwhile_loses_no_fact() -> None:
    async def collides(ledger: TroubledLedger, _messages: Sequence[Outgoing]) -> None:
        await by_another(ledger, NodeObserved(uid="u", labels={"nvidia.com/gpu.product": "z"}), 1, at=-1)

    ledger = TroubledLedger(collides)
    async with watching(ledger, listing(gpu_node("w1"), version="5"), ON):
        await comes(ledger, "1 w1 z", "1 w1 a", "2 w1 a")


async def test_what_somebody_else_said_late_is_put_right() -> None:
    ledger = MemoryLedger()
    async with watching(ledger, listing(gpu_node("w1"), version="5"), ON, audit_interval_s=0.01):
        await comes(ledger, "1 w1 a")
        await by_another(ledger, NodeGone(uid="u"), 2, at=1)
        await comes(ledger, "1 w1 a", "2 w1 gone", "3 w1 a")
        await by_another(ledger, NodeGone(uid="u"), 4, at=-1)
        await by_another(ledger, NodeObserved(uid="u", labels={"nvidia.com/gpu.product": "z"}), 5, at=2)
        await comes(ledger, "1 w1 a", "2 w1 gone", "3 w1 a", "4 w1 gone", "5 w1 z", "6 w1 a")


async def test_a_book_that_was_left_while_reading_knows_everything_afterwards() -> None:
    ledger = MemoryLedger()
    first = Book(ledger, NODES, lambda: "e")
    facts = [Fact(f"w{index}", START, NodeObserved(uid="u")) for index in range(9_000)]
    await first.record(facts)
    book = Book(ledger, NODES, lambda: "other")

    async def read() -> None:
        await book.catch_up()

    for turns in range(3):
        reading = asyncio.create_task(read())
        for _ in range(turns):
            await asyncio.sleep(0)
        await stop(reading)
    await book.catch_up()
    assert book.known == first.known
    await book.record([Fact("w0", START, NodeGone(uid="u"))])
    assert decode((await everything(ledger))[-1].data).number == 9_001


class SlowToShow(MemoryLedger):
    """Acknowledges what it does not show yet, and tells nobody where its end is."""

    shows = True

    @asynccontextmanager
    async def read(self, after: int = 0, subject_filter: str = ALL) -> AsyncIterator[MemoryReader]:
        async with super().read(after, subject_filter if self.shows else "nothing") as reader:
            yield reader

    async def last_sequence(self, subject_filter: str) -> int:
        raise AssertionError(f"The end of {subject_filter} is looked for, which takes the longer the more there is.")


async def test_what_was_recorded_is_read_back_without_a_search_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuledger.watchers.book.READ_BACK_TIMEOUT_S", 0.01)
    ledger = SlowToShow()
    book = Book(ledger, NODES, lambda: "e")
    assert await book.record([Fact("w1", START, NodeObserved(uid="u"))]) == {"w1"}
    ledger.shows = False
    with pytest.raises(LedgerUnavailableError, match=r"position 2 .* only up to 1\."):
        await book.record([Fact("w1", hour(1), NodeGone(uid="u"))])
    ledger.shows = True
    assert await book.record([Fact("w1", hour(1), NodeGone(uid="u"))]) == {"w1"}
    assert await ledger.head() == 2


async def test_a_long_list_is_recorded_whole() -> None:
    ledger = MemoryLedger()
    many = [gpu_node(f"w{index:04}") for index in range(1_200)]
    async with watching(ledger, listing(*many, version="5"), ON):
        await eventually(lambda: has(ledger, 1_200))
    assert [int(one.split()[0]) for one in await said(ledger)] == list(range(1, 1_201))


async def test_who_ends_first_ends_the_others() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await first_of(waits(), fails(), waits())
    assert ended == ["cancelled", "cancelled"]


async def test_ticks_come_between_items_and_lose_none() -> None:
    more = asyncio.Event()

    async def items() -> AsyncIterator[int]:
        yield 1
        await more.wait()
        yield 2

    seen: list[int | None] = []
    async with aclosing(ticking(items(), 0.01)) as ticks:
        async for one in ticks:
            seen.append(one)
            if seen.count(None) == 2:
                more.set()
    assert (seen[0], seen[-1]) == (1, 2)
    assert len(seen) - seen.count(None) == 2


@pytest.mark.parametrize(
    ("before", "after", "is_another"), [("c1", "c2", True), ("c1", None, False), (None, "c2", False)]
)
async def test_versions_of_another_cluster_are_not_believed(
    before: str | None, after: str | None, is_another: bool
) -> None:
    ledger = MemoryLedger()
    end, begin = asyncio.Event(), asyncio.Event()

    async def ends(request: web.Request) -> web.StreamResponse:
        end.set()
        await begin.wait()
        return await stream(b"{", broken=True)(request)

    rest = [ends, ON, *([listing(gpu_node("w2"), version="3"), ON] if is_another else [])]
    async with watching(ledger, listing(gpu_node("w1"), version="5"), *rest, audit_interval_s=0.01) as (_, api):
        api.cluster = before
        await comes(ledger, "1 w1 a")
        await end.wait()
        api.cluster = after
        begin.set()
        await asked(api, 5 if is_another else 3)
        await comes(ledger, "1 w1 a", *(["2 w1 gone", "3 w2 a"] if is_another else []))


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"gpuledger_watcher_{name}", {"watcher": "nodes", **labels}) or 0.0


async def test_metrics_tell_what_was_recorded_what_failed_and_how_long_it_is_quiet() -> None:
    ledger = MemoryLedger()
    before = [metric("events_total"), metric("lists_total"), metric("errors_total", error="UnavailableError")]
    async with watching(ledger, refuse(500), listing(gpu_node("w1"), gpu_node("w2"), version="5"), ON) as (watch, api):
        await asked(api, 3)
        after = [metric("events_total"), metric("lists_total"), metric("errors_total", error="UnavailableError")]
        assert [b - a for a, b in zip(before, after, strict=True)] == [2, 1, 1]
        watch.now = hour(1)
        assert metric("contact_seconds") == 3600
    assert metric("contact_seconds") == 0
