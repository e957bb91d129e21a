"""The webhooks' server: what it turns away, and what its metrics say. No API server is needed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest
from prometheus_client import REGISTRY

from gpuledger.edge.admission.caller_token import CallerTokens
from gpuledger.edge.admission.rules.decide import decide
from gpuledger.edge.admission.server import WebhookServer
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.edge.webhooks.serving.review import AdmissionRequest, AdmissionResponse
from gpuledger.runtime.telemetry_http import ListenError
from support.admission import Json, cached, device, namespace, pod_with, pool
from support.waiting import eventually

CLUSTER = "cluster.gpu.deckhouse.io/cluster-a"
KNOWN = cached(namespace("team"), *pool("cluster-a"), *device())


def answering(review: AdmissionRequest) -> AdmissionResponse | None:
    return decide(review, KNOWN)


@asynccontextmanager
async def server(
    decides: Callable[[AdmissionRequest], AdmissionResponse | None] = answering, **bounds: Any
) -> AsyncIterator[aiohttp.ClientSession]:
    found = WebhookServer(decides, AdmissionSettings(listen="127.0.0.1:0", **bounds))
    async with found.serving(None) as url, aiohttp.ClientSession(url) as session:
        yield session


def question(pod: Json, uid: str = "u1") -> bytes:
    request = {"uid": uid, "operation": "CREATE", "resource": {"resource": "pods"}, "namespace": "team", "object": pod}
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


async def posted(session: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, Json]:
    async with session.post(path, data=body) as response:
        text = await response.text()
        return response.status, orjson.loads(text)["response"] if response.status == 200 else {"text": text}


async def test_only_the_mutating_path_changes_anything() -> None:
    async with server() as session:
        code, hinted = await posted(session, "/mutate", question(pod_with(CLUSTER), "u7"))
        assert (code, hinted["uid"], hinted["allowed"], hinted["patchType"]) == (
            200,
            "u7",
            True,
            "JSONPatch",
        )
        assert await posted(session, "/validate", question(pod_with(CLUSTER))) == (200, {"uid": "u1", "allowed": True})
        code, refused = await posted(session, "/validate", question(pod_with(CLUSTER, amount="9")))
        assert (code, refused["allowed"]) == (200, False)
        assert refused["status"]["message"].startswith("CapacityExceeded: ")


async def test_nothing_is_answered_until_enough_is_known() -> None:
    async with server(lambda _: None) as session:
        code, body = await posted(session, "/mutate", question(pod_with(CLUSTER)))
    assert (code, "Try again" in body["text"]) == (503, True)


@pytest.mark.parametrize(("body", "code"), [(b"no json", 400), (b"[]", 400), (b"x" * 2000, 413)])
async def test_what_is_no_review_is_turned_away(body: bytes, code: int) -> None:
    async with server(review_bytes_max=1000) as session:
        assert (await posted(session, "/validate", body))[0] == code


async def test_a_body_that_does_not_come_is_given_up_on() -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await never.wait()

    never = asyncio.Event()
    async with server(review_timeout_s=0.05, reviews_at_once_max=1) as session:
        assert (await posted(session, "/validate", slowly()))[0] == 503

        async def answers() -> bool:
            return (await posted(session, "/validate", question(pod_with("cpu"))))[0] == 200

        await eventually(answers)


async def test_only_callers_with_the_token_report_a_use() -> None:
    watched: list[str] = []
    callers = CallerTokens()
    callers.accept("t0k3n")
    bounds = AdmissionSettings(listen="127.0.0.1:0", reviews_at_once_max=1, review_timeout_s=0.05)
    found = WebhookServer(lambda _: None, bounds, lambda request: watched.append(request.uid), callers)
    before = {reason: unrecorded(reason) for reason in ("unknown-caller", "busy")}
    async with found.serving(None) as url, aiohttp.ClientSession(url) as session:
        assert await posted(session, "/break-glass/t0k3n", question({})) == (200, {"uid": "u1", "allowed": True})
        for path, code in (("/break-glass/other", 403), ("/break-glass/", 404), ("/break-glass", 404)):
            assert (await posted(session, path, question({})))[0] == code
        assert (watched, unrecorded("unknown-caller")) == (["u1"], before["unknown-caller"] + 1)
        async with found._server.slots:
            assert (await posted(session, "/break-glass/t0k3n", question({})))[0] == 503
    assert (watched, unrecorded("busy")) == (["u1"], before["busy"] + 1)


def unrecorded(reason: str) -> float:
    return counted("gpuledger_admission_break_glass_unrecorded_total", reason=reason)


async def test_other_paths_and_methods_are_not_served() -> None:
    async with server() as session:
        assert (await posted(session, "/", b""))[0] == 404
        async with session.get("/validate") as response:
            assert response.status == 405


async def test_an_address_in_use_is_an_error() -> None:
    async with server() as session:
        port = session._base_url.port if session._base_url else 0
        taken = WebhookServer(answering, AdmissionSettings(listen=f"127.0.0.1:{port}"))
        with pytest.raises(ListenError, match="Choose another address"):
            async with taken.serving(None):
                pass


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_metrics_count_reviews_and_refusals() -> None:
    reviews = {"resource": "pods", "outcome": "refused"}
    refusals = {"resource": "pods", "reason": "CapacityExceeded"}
    before = counted("gpuledger_admission_reviews_total", **reviews)
    refused = counted("gpuledger_admission_refusals_total", **refusals)
    async with server() as session:
        await posted(session, "/validate", question(pod_with(CLUSTER, amount="9")))
    assert counted("gpuledger_admission_reviews_total", **reviews) == before + 1
    assert counted("gpuledger_admission_refusals_total", **refusals) == refused + 1
