"""One watcher against a scripted API server: lists, changes, and failures that prove nothing."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from gpuledger.edge.watchers.resources import nodefeatures
from gpuledger.events.envelope import decode
from gpuledger.events.position import events_up_to
from gpuledger.ledger.memory import MemoryLedger
from support.events import START, hour
from support.ledgers import everything
from support.one_watcher import ON, comes, gpu_node, recorded_lines, requested, watching
from support.scripted_api import Answer, answer, event, listing, refuse, stream
from support.waiting import eventually


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
        await requested(api, 2)
    assert len(await recorded_lines(ledger)) == 8
    assert {one.split()[0] for one in await recorded_lines(ledger, epoch=True)} == {"e"}


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
async def test_a_list_that_fails_proves_no_deletion(failure: list[Answer]) -> None:
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


async def has(ledger: MemoryLedger, count: int) -> bool:
    return events_up_to(await ledger.head()) >= count


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
    assert watch.watcher.listed.is_set()


async def test_a_kind_that_is_not_served_is_logged_once() -> None:
    absent = [*GONE_KIND[0], *GONE_KIND[0], *GONE_KIND[0]]
    with capture_logs() as logs:
        async with watching(MemoryLedger(), *absent, refuse(503), *absent, kind=nodefeatures.KIND) as (_, api):
            await requested(api, 14)
    absences = [one["log_level"] for one in logs if one["event"] == "watcher.kind-absent"]
    assert absences == ["info"]


@pytest.mark.parametrize("answers", UNCLEAR)
async def test_a_not_found_that_discovery_does_not_confirm_proves_nothing(answers: list[Answer]) -> None:
    ledger = MemoryLedger()
    first = [listing(feature("w1"), version="5"), refuse(410, "Expired")]
    again = [listing(feature("w1"), feature("w2"), version="9"), ON]
    async with watching(ledger, *first, *answers, *again, kind=nodefeatures.KIND):
        await eventually(lambda: has(ledger, 2))
    assert [decode(message.data).subject for message in await everything(ledger)] == ["w1", "w2"]


async def test_a_long_list_is_recorded_whole() -> None:
    ledger = MemoryLedger()
    many = [gpu_node(f"w{index:04}") for index in range(1_200)]
    async with watching(ledger, listing(*many, version="5"), ON):
        await eventually(lambda: has(ledger, 1_200))
    assert [int(one.split()[0]) for one in await recorded_lines(ledger)] == list(range(1, 1_201))


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
        await requested(api, 5 if is_another else 3)
        await comes(ledger, "1 w1 a", *(["2 w1 gone", "3 w2 a"] if is_another else []))


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"gpuledger_watcher_{name}", {"watcher": "nodes", **labels}) or 0.0


async def test_metrics_count_records_failures_and_the_time_without_contact() -> None:
    ledger = MemoryLedger()
    before = [metric("events_total"), metric("lists_total"), metric("errors_total", error="UnavailableError")]
    async with watching(ledger, refuse(500), listing(gpu_node("w1"), gpu_node("w2"), version="5"), ON) as (watch, api):
        await requested(api, 3)
        after = [metric("events_total"), metric("lists_total"), metric("errors_total", error="UnavailableError")]
        assert [b - a for a, b in zip(before, after, strict=True)] == [2, 1, 1]
        watch.now = hour(1)
        assert metric("contact_seconds") == 3600
    assert metric("contact_seconds") == 0
