"""The client against answers that a test has written down: pages, refusals, time-outs, nonsense."""

import gc
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientResponse, web
from kubernetes.aio.client.configuration import Configuration

from gpuledger.api.kinds import GPU_DEVICES, NODE_FEATURES, NODES
from gpuledger.edge.kube import client as client_module
from gpuledger.edge.kube import errors
from gpuledger.edge.kube.client import KubeClient, Selection
from gpuledger.edge.kube.kubeconfig import cluster_name, load_configuration
from gpuledger.edge.kube.transport import LINE_BYTES_MAX, Lines
from support.scripted_api import Answer, ScriptedApi, answer, event, failure, listing, node, refuse, stream


async def names_of(api: ScriptedApi, **more: Any) -> list[str]:
    async with api.serving() as client:
        return [one["metadata"]["name"] for one in (await client.list(NODES, **more)).items]


async def test_a_list_is_read_page_by_page() -> None:
    api = ScriptedApi(listing(node("a"), node("b"), version="7", more="t1"), listing(node("c"), version="7"))
    assert await names_of(api, selection=Selection(labels="gpu=yes", fields="x=y"), page=2) == ["a", "b", "c"]
    first, second = (dict(request.query) for request in api.requests)
    assert first == {"labelSelector": "gpu=yes", "fieldSelector": "x=y", "limit": "2"}
    assert second == first | {"continue": "t1"}


async def test_an_expired_page_begins_the_list_anew_without_repeats() -> None:
    api = ScriptedApi(
        listing(node("a"), version="7", more="t1"), refuse(410, "Expired"), listing(node("a"), node("b"), version="9")
    )
    assert await names_of(api) == ["a", "b"]


async def test_pages_that_keep_expiring_become_one_request() -> None:
    again = [listing(node("a"), version="7", more="t"), refuse(410, "Expired")]
    api = ScriptedApi(*again, *again, listing(node("a"), node("b"), version="9"))
    assert await names_of(api) == ["a", "b"]
    assert "limit" not in api.requests[-1].query


async def test_a_list_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LIST_OBJECTS_MAX", 1)
    with pytest.raises(errors.ResponseError, match="more than 1 nodes"):
        await names_of(ScriptedApi(listing(node("a"), node("b"), version="7")))


async def test_namespaces_are_part_of_the_path() -> None:
    api = ScriptedApi(listing(version="1"), listing(version="1"), answer({}))
    async with api.serving() as client:
        await client.list(NODE_FEATURES)
        await client.list(NODE_FEATURES, Selection(namespace="nfd"))
        await client.get(NODE_FEATURES, "w1", "nfd")
    root = "/apis/nfd.k8s-sigs.io/v1alpha1"
    assert [request.path for request in api.requests] == [
        f"{root}/nodefeatures", f"{root}/namespaces/nfd/nodefeatures", f"{root}/namespaces/nfd/nodefeatures/w1"
    ]  # fmt: skip


async def test_the_conflict_of_an_apply_names_the_owners_of_fields() -> None:
    api = ScriptedApi(answer({}))
    async with api.serving() as client:
        await client.apply(GPU_DEVICES, {"metadata": {"name": "d0"}, "status": {}}, subresource="status")
    (request,) = api.requests
    assert (request.method, request.path) == ("PATCH", "/apis/gpu.deckhouse.io/v1alpha1/gpudevices/d0/status")
    assert dict(request.query) == {"fieldManager": "gpuledger", "force": "false"}
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    body = orjson.loads(await request.read())
    assert (body["apiVersion"], body["kind"]) == ("gpu.deckhouse.io/v1alpha1", "GPUDevice")


async def test_a_delete_may_have_preconditions() -> None:
    api = ScriptedApi(answer({}))
    async with api.serving() as client:
        await client.delete(GPU_DEVICES, "d0", uid="u1", resource_version="5")
    assert orjson.loads(await api.requests[0].read())["preconditions"] == {"uid": "u1", "resourceVersion": "5"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (refuse(400, "BadRequest"), errors.BadRequestError),
        (refuse(401, "Unauthorized"), errors.UnauthorizedError),
        (refuse(403, "Forbidden"), errors.ForbiddenError),
        (refuse(404, "NotFound"), errors.NotFoundError),
        (refuse(409, "Conflict"), errors.ConflictError),
        (refuse(409, "AlreadyExists"), errors.AlreadyExistsError),
        (refuse(410, "Gone"), errors.GoneError),
        (refuse(422, "Invalid"), errors.InvalidError),
        (refuse(429, "TooManyRequests"), errors.TooManyRequestsError),
        (refuse(500, "InternalError"), errors.UnavailableError),
        (refuse(500, message="failed to create typed patch object (/x; v1, Kind=X): .a: bad"), errors.SchemaError),
        (refuse(500, message='Internal error occurred: failed calling webhook "x.y.z": EOF'), errors.WebhookAwayError),
        (refuse(501, "NotImplemented"), errors.RefusedError),
        (refuse(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge"}]), errors.GoneError),
        (answer("upstream is away", 502), errors.UnavailableError),
        (answer("<html>", 200), errors.ResponseError),
        (answer([1], 200), errors.ResponseError),
    ],
)
async def test_refusals_have_names(given: Answer, expected: type[Exception]) -> None:
    async with ScriptedApi(given).serving() as client:
        with pytest.raises(expected) as raised:
            await client.get(NODES, "w1")
        assert type(raised.value) is expected
        assert 'get nodes "w1"' in str(raised.value)
        assert client.url in str(raised.value)


async def test_what_a_webhook_turned_down_is_no_matter_of_rights() -> None:
    message = 'admission webhook "pods.example.com" denied the request: DeviceInUse: d0 has a pool. Wait.'
    async with ScriptedApi(refuse(403, "DeviceInUse", message)).serving() as client:
        with pytest.raises(errors.ForbiddenError, match=r"denied the request: DeviceInUse: d0 has a pool\. Wait\.$"):
            await client.get(NODES, "w1")


async def test_a_conflict_names_fields_and_managers() -> None:
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl-edit"', "field": ".status.state"}
    async with ScriptedApi(refuse(409, "Conflict", "1 conflict", causes=[cause])).serving() as client:
        with pytest.raises(errors.ConflictError, match=r'\.status\.state: conflict with "kubectl-edit"') as raised:
            await client.apply(GPU_DEVICES, {"metadata": {"name": "d0"}})
    assert raised.value.causes == (errors.StatusCause(**cause),)


@pytest.mark.parametrize(
    ("given", "retry_after_s"),
    [
        (refuse(429, headers={"Retry-After": "7"}), 7),
        (refuse(429, retryAfterSeconds=3), 3),
        (refuse(503, headers={"Retry-After": "1"}), 1),
        (refuse(503), None),
    ],
)
async def test_the_error_carries_retry_after(given: Answer, retry_after_s: float | None) -> None:
    async with ScriptedApi(given).serving() as client:
        with pytest.raises(errors.TransientError) as raised:
            await client.get(NODES, "w1")
    assert raised.value.retry_after_s == retry_after_s


async def test_nobody_answers() -> None:
    async with ScriptedApi().serving() as client:
        late = KubeClient(Configuration(host=client.url))
    with pytest.raises(errors.UnavailableError, match="did not answer the request to"):
        await late.get(NODES, "w1")
    await late.close()


async def test_an_answer_that_does_not_come() -> None:
    async with ScriptedApi(stream(b"{", silent=True)).serving(request_timeout_s=0.05) as client:
        with pytest.raises(errors.UnavailableError):
            await client.get(NODES, "w1")


async def print_unanswered(request: web.Request) -> web.StreamResponse:
    """Print the response that waits for this answer, answer, and close the connection."""
    unanswered = [one for one in gc.get_objects() if type(one) is ClientResponse and one.status is None]
    assert str(request.url) in map(str, (one.url for one in unanswered))
    assert "None" in "".join(map(repr, unanswered))
    return web.json_response({}, headers={"Connection": "close"})


async def test_an_answer_to_a_response_that_was_printed_before() -> None:
    async with ScriptedApi(print_unanswered, answer({"kind": "Node"})).serving() as client:
        with pytest.raises(errors.UnavailableError, match="the connection was lost as the answer began"):
            await client.get(NODES, "w1")
        assert await client.get(NODES, "w1") == {"kind": "Node"}


async def test_a_watch_whose_response_was_printed_before() -> None:
    with pytest.raises(errors.UnavailableError, match="the connection was lost as the answer began"):
        await events_of(ScriptedApi(print_unanswered))


async def events_of(api: ScriptedApi, **settings: Any) -> list[str]:
    """The names, in order; raises what the watch raises."""
    seen: list[str] = []
    async with api.serving(**settings) as client:
        async for batch in client.watch(NODES, "5"):
            seen += [one["object"]["metadata"]["name"] for one in batch]
    return seen


async def test_events_are_put_together_from_whatever_chunks_come() -> None:
    whole = event("ADDED", node("a")) + event("MODIFIED", node("b"))
    api = ScriptedApi(stream(whole[:10], whole[10:60], whole[60:], b"\n"))
    assert await events_of(api) == ["a", "b"]
    query = api.requests[0].query
    assert (query["watch"], query["resourceVersion"], query["allowWatchBookmarks"]) == ("1", "5", "true")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (stream(event("ERROR", failure(410, "Expired"))), errors.GoneError),
        (stream(event("ERROR", failure(500, "InternalError"))), errors.UnavailableError),
        (refuse(410, "Expired"), errors.GoneError),
        (stream(event("ADDED", node("a"))[:20]), errors.UnavailableError),
        (stream(event("ADDED", node("a")), broken=True), errors.UnavailableError),
        (stream(b"nonsense\n"), errors.ResponseError),
    ],
)
async def test_streams_that_end_badly(given: Answer, expected: type[Exception]) -> None:
    with pytest.raises(expected):
        await events_of(ScriptedApi(given))


async def test_a_silent_stream_is_dead() -> None:
    with pytest.raises(errors.UnavailableError):
        await events_of(ScriptedApi(stream(event("ADDED", node("a")), silent=True)), stream_idle_timeout_s=0.05)


def test_an_event_has_a_bound() -> None:
    lines = Lines()
    with pytest.raises(errors.ResponseError):
        lines.feed(b"x" * (LINE_BYTES_MAX + 1))


def write(path: Path, server: str, user: dict[str, Any] | None = None) -> Path:
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {}}],
    }  # fmt: skip
    path.write_bytes(orjson.dumps(config))
    return path


async def test_a_file_that_is_named_wins(tmp_path: Path) -> None:
    named, other = write(tmp_path / "a", "http://a:1"), write(tmp_path / "b", "http://b:1")
    environ = {"KUBECONFIG": str(other)}
    assert (await load_configuration(named, environ=environ)).host == "http://a:1"
    assert (await load_configuration(environ=environ)).host == "http://b:1"


async def test_a_cluster_is_named_by_context_and_server(tmp_path: Path) -> None:
    found = await cluster_name(environ={"KUBECONFIG": str(write(tmp_path / "a", "http://a:1"))})
    assert (found, str(found)) == (("x", "http://a:1"), "context x, server http://a:1")


async def test_a_token_is_sent(tmp_path: Path) -> None:
    api = ScriptedApi(answer({}))
    async with api.serving() as client:
        configuration = await load_configuration(write(tmp_path / "a", client.url, {"token": "s3cret"}))
        mine = KubeClient(configuration)
        await mine.get(NODES, "w1")
        await mine.close()
    assert api.requests[0].headers["Authorization"] == "Bearer s3cret"


async def test_a_kubeconfig_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(errors.KubeConfigError, match="Name one with --kubeconfig"):
        await load_configuration(tmp_path / "none")


async def test_a_kubeconfig_that_makes_no_sense(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("contexts: []\nclusters: []\nusers: []\ncurrent-context: x\n")
    with pytest.raises(errors.KubeConfigError, match="cannot be used"):
        await load_configuration(tmp_path / "bad")


@pytest.mark.parametrize("user", [{"token": "t", "as": "system:serviceaccount:ml:viewer"}, {"as-groups": ["viewers"]}])
async def test_impersonation_is_refused(tmp_path: Path, user: dict[str, Any]) -> None:
    with pytest.raises(errors.KubeConfigError, match=r"acts as .*viewer.* Use credentials"):
        await load_configuration(write(tmp_path / "a", "http://a:1", user))


async def test_a_pod_without_its_token() -> None:
    with pytest.raises(errors.KubeConfigError, match="service account"):
        await load_configuration(environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
