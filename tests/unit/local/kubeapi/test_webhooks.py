"""Admission webhooks, asked over TLS."""

import asyncio
import base64
import datetime as dt
import itertools
import json
import ssl
from collections.abc import AsyncIterator
from ipaddress import ip_address
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpuledger.local.kubeapi.admission_request import KindVersion, Question, request_of
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.strategies.webhook_configurations import MutatingConfigurationStrategy
from gpuledger.local.kubeapi.webhook_matching import matched_review
from gpuledger.local.kubeapi.webhooks import Webhooks

PODS = KindVersion("", "v1", "Pod", "pods")
POD = {"metadata": {"name": "p", "namespace": "a", "labels": {"app": "x"}}, "spec": {}}
CREATE = Question("CREATE", PODS, "p", "a", user={"username": "me"}, options={"dryRun": []})
RULE = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
SERVICE_NAME = "hook.gpu.svc"


def hook(**changes: Any) -> Any:
    return {"name": "h.example.com", "rules": [RULE], "sideEffects": "None", "timeoutSeconds": 5} | changes


def labels_of(namespace: Any) -> Any:
    return {"team": "gpu"} if namespace == "a" else {}


def matches(changes: Any, question: Any = CREATE, obj: Any = POD, old: Any = None) -> Any:
    return matched_review(hook(**changes), question, obj, old, labels_of) is not None


def rule(**changes: Any) -> Any:
    return {"rules": [RULE | changes]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        (rule(operations=["UPDATE"]), False),
        (rule(apiGroups=["apps"]), False),
        (rule(resources=["*"]), True),
        (rule(resources=["pods/*"]), True),
        (rule(resources=["pods/status"]), False),
        (rule(scope="Cluster"), False),
        (rule(scope="Namespaced"), True),
        ({"namespaceSelector": {"matchLabels": {"team": "gpu"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "cpu"}}}, False),
        ({"objectSelector": {"matchLabels": {"app": "x"}}}, True),
        ({"objectSelector": {"matchLabels": {"app": "y"}}}, False),
        ({"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'p'"}]}, True),
        ({"matchConditions": [{"name": "c", "expression": "request.operation == 'DELETE'"}]}, False),
        ({"matchConditions": [{"name": "c", "expression": "object.spec.none == 1"}], "failurePolicy": "Ignore"}, False),
    ],
)
def test_matching(changes: Any, expected: Any) -> None:
    assert matches(changes) is expected


@pytest.mark.parametrize(("policy", "is_asked"), [(None, True), ("Equivalent", True), ("Exact", False)])
def test_a_rule_may_name_another_version_of_the_resource(policy: Any, is_asked: Any) -> None:
    older = PODS._replace(version="v1beta1")
    request = Question("CREATE", older, "p", "a", others=(PODS,))
    found = matched_review(hook(matchPolicy=policy), request, POD, None, labels_of)
    assert (found is not None) == is_asked
    if found is not None:
        sent = request_of(found, "", POD, None)
        versions = (sent["kind"]["version"], sent["requestKind"]["version"], sent["object"]["apiVersion"])
        assert versions == ("v1", "v1beta1", "v1")


def test_a_condition_that_fails_fails_closed() -> None:
    with pytest.raises(ApiError) as caught:
        matches({"matchConditions": [{"name": "c", "expression": "object.spec.none == 1"}]})
    assert caught.value.code == 403


def test_subresources() -> None:
    status = Question("UPDATE", PODS, "p", "a", subresource="status")
    assert not matches(rule(resources=["pods"]), status)
    assert matches(rule(resources=["*/*"]), status)


def test_webhook_configurations_call_no_webhook() -> None:
    version = KindVersion("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "x")
    assert not matches(rule(apiGroups=["*"], apiVersions=["*"], resources=["*"]), Question("CREATE", version, "x"))


class Pki:
    """A CA and a server's certificate for loopback."""

    def __init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
        now = dt.datetime.now(dt.UTC)
        names = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName(SERVICE_NAME)]
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)
        self.key = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.bundle = base64.b64encode(self.pem).decode()


@pytest.fixture(scope="module")
def pki() -> Any:
    return Pki()


class Hooks:
    """A webhook server whose answers the test gives by path."""

    def __init__(self, pki: Any, tmp_path: Any) -> None:
        self.pki = pki
        self.answers: dict[str, Any] = {}
        self.requests: list[Any] = []
        (tmp_path / "cert.pem").write_bytes(pki.pem)
        (tmp_path / "key.pem").write_bytes(pki.key)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
        self.port = 0

    async def answer(self, request: Any) -> Any:
        review = await request.json()
        self.requests.append((request.path, review["request"]))
        answer = self.answers[request.path]
        given = await answer(review["request"]) if callable(answer) else answer
        if isinstance(given, web.Response):
            return given
        response = {"uid": review["request"]["uid"]} | given
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    def hook(self, path: Any, answer: Any, **changes: Any) -> Any:
        self.answers[path] = answer
        url = f"https://127.0.0.1:{self.port}{path}"
        return hook(clientConfig={"url": url, "caBundle": self.pki.bundle}, name=f"{path[1:]}.example.com") | changes


@pytest.fixture
async def server(pki: Any, tmp_path: Any) -> AsyncIterator[Any]:
    hooks = Hooks(pki, tmp_path)
    app = web.Application()
    app.router.add_post("/{path}", hooks.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=hooks.tls)
    await site.start()
    hooks.port = runner.addresses[0][1]
    yield hooks
    await runner.cleanup()


@pytest.fixture
async def webhooks(server: Any) -> AsyncIterator[Any]:
    ids = itertools.count(1)

    def resolve(namespace: Any, name: Any, port: Any) -> Any:
        return ("127.0.0.1", server.port) if (namespace, name, port) == ("gpu", "hook", 443) else None

    async with aiohttp.ClientSession() as session:
        yield Webhooks(session, lambda: f"uid-{next(ids)}", resolve, labels_of)


def configured(*hooks: Any) -> Any:
    return [{"metadata": {"name": "c"}, "webhooks": list(hooks)}]


def patching(*operations: Any) -> Any:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patch": patch, "patchType": "JSONPatch"}


YES = {"allowed": True}


async def refused(webhooks: Any, one: Any, question: Any = CREATE) -> Any:
    with pytest.raises(ApiError) as caught:
        await webhooks.validate(configured(one), question, POD, None, [])
    return caught.value


async def test_a_review_tells_what_is_to_be_done(server: Any, webhooks: Any) -> None:
    warnings: list[str] = []
    await webhooks.validate(configured(server.hook("/a", YES | {"warnings": ["careful"]})), CREATE, POD, None, warnings)
    [(_, request)] = server.requests
    assert request == {
        "uid": "uid-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "p",
        "namespace": "a",
        "operation": "CREATE",
        "userInfo": {"username": "me"},
        "object": POD | {"kind": "Pod", "apiVersion": "v1"},
        "oldObject": None,
        "dryRun": False,
        "options": {"dryRun": []},
    }
    assert warnings == ["careful"]


async def test_mutations_follow_one_another(server: Any, webhooks: Any) -> None:
    async def second(request: Any) -> Any:
        assert request["object"]["metadata"]["labels"]["one"] == "1"
        return patching({"op": "add", "path": "/metadata/labels/two", "value": "2"})

    first = server.hook("/a", patching({"op": "add", "path": "/metadata/labels/one", "value": "1"}))
    changed = await webhooks.mutate(configured(first, server.hook("/b", second)), CREATE, POD, None, [])
    assert changed["metadata"]["labels"] == {"app": "x", "one": "1", "two": "2"}
    assert changed.keys() == POD.keys()
    assert POD["metadata"]["labels"] == {"app": "x"}


@pytest.mark.parametrize(("policy", "paths"), [("IfNeeded", ["/a", "/b", "/a"]), ("Never", ["/a", "/b"])])
async def test_reinvocation(server: Any, webhooks: Any, policy: Any, paths: Any) -> None:
    first = server.hook("/a", YES, reinvocationPolicy=policy)
    second = server.hook("/b", patching({"op": "add", "path": "/metadata/labels/b", "value": ""}))
    await webhooks.mutate(configured(first, second), CREATE, POD, None, [])
    assert [path for path, _ in server.requests] == paths


async def test_refusals(server: Any, webhooks: Any) -> None:
    status = {"code": 403, "message": "no", "reason": "Forbidden"}
    error = await refused(webhooks, server.hook("/a", {"allowed": False, "status": status}))
    assert (error.code, error.reason) == (403, "Forbidden")
    assert error.message == 'admission webhook "a.example.com" denied the request: no'
    bare = await refused(webhooks, server.hook("/a", {"allowed": False}))
    assert bare.message == 'admission webhook "a.example.com" denied the request without explanation'


async def test_the_first_of_several_refusals_is_the_error(server: Any, webhooks: Any) -> None:
    hooks = [server.hook(path, {"allowed": False}) for path in ("/a", "/b")]
    with pytest.raises(ApiError, match=r"a\.example"):
        await webhooks.validate(configured(*hooks), CREATE, POD, None, [])


async def slow(request: Any) -> Any:
    await asyncio.Event().wait()


async def elsewhere(request: Any) -> Any:
    return {"allowed": True, "uid": "other"}


async def broken(request: Any) -> Any:
    return web.Response(status=500)


@pytest.mark.parametrize("answer", [slow, elsewhere, broken])
async def test_failure_policies(server: Any, webhooks: Any, answer: Any) -> None:
    error = await refused(webhooks, server.hook("/a", answer, timeoutSeconds=1))
    assert (error.code, error.reason) == (500, "InternalError")
    assert 'failed calling webhook "a.example.com"' in error.message
    ignored = server.hook("/a", answer, failurePolicy="Ignore", timeoutSeconds=1)
    await webhooks.validate(configured(ignored), CREATE, POD, None, [])


async def test_an_unknown_authority_is_not_trusted(server: Any, webhooks: Any) -> None:
    one = server.hook("/a", YES)
    other = {"url": one["clientConfig"]["url"], "caBundle": Pki().bundle}
    assert (await refused(webhooks, one | {"clientConfig": other})).code == 500
    assert server.requests == []
    nonsense = other | {"caBundle": base64.b64encode(b"x").decode()}
    assert "caBundle" in (await refused(webhooks, one | {"clientConfig": nonsense})).message


async def test_services_are_resolved_and_their_name_is_checked(server: Any, webhooks: Any) -> None:
    one = server.hook("/a", YES)
    service = {"namespace": "gpu", "name": "hook", "path": "/a"}
    there = one | {"clientConfig": {"service": service, "caBundle": server.pki.bundle}}
    await webhooks.validate(configured(there), CREATE, POD, None, [])
    assert [path for path, _ in server.requests] == ["/a"]
    nowhere = one | {"clientConfig": {"service": service | {"name": "none"}}}
    assert 'service "none" not found' in (await refused(webhooks, nowhere)).message


async def test_dry_runs_reach_only_hooks_without_side_effects(server: Any, webhooks: Any) -> None:
    dry = Question("CREATE", PODS, "p", "a", options={"dryRun": ["All"]})
    assert (await refused(webhooks, server.hook("/a", YES, sideEffects="Some"), dry)).code == 400
    await webhooks.validate(configured(server.hook("/a", YES)), dry, POD, None, [])
    assert server.requests[0][1]["dryRun"] is True


async def test_a_patch_that_does_not_apply_fails(server: Any, webhooks: Any) -> None:
    wrong = server.hook("/a", patching({"op": "remove", "path": "/none"}), failurePolicy="Ignore")
    with pytest.raises(ApiError) as caught:
        await webhooks.mutate(configured(wrong), CREATE, POD, None, [])
    assert caught.value.code == 500


def test_configurations_fail_closed_by_default() -> None:
    service = {"name": "s", "namespace": "n"}
    obj: Any = {"webhooks": [hook(clientConfig={"service": service}, admissionReviewVersions=["v1"])]}
    obj["webhooks"][0].pop("timeoutSeconds")
    strategy = MutatingConfigurationStrategy()
    strategy.default(obj)
    [given] = obj["webhooks"]
    assert (given["failurePolicy"], given["timeoutSeconds"], given["reinvocationPolicy"]) == ("Fail", 10, "Never")
    assert given["clientConfig"]["service"]["port"] == 443
    assert strategy.validate(obj) == []


def test_configurations_are_validated() -> None:
    wrong = {"name": "a.b", "rules": [RULE | {"operations": []}], "clientConfig": {}, "timeoutSeconds": 31}
    fields = [cause.field for cause in MutatingConfigurationStrategy().validate({"webhooks": [wrong]})]
    names = ("name", "rules[0].operations", "sideEffects", "timeoutSeconds", "clientConfig")
    assert fields == [f"webhooks[0].{name}" for name in (*names, "admissionReviewVersions")]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"matchConditions": [{"name": "c", "expression": "object.spec. <"}]}, "matchConditions[0].expression"),
        ({"matchConditions": [{"name": "c", "expression": "variables.a"}]}, "matchConditions[0].expression"),
        ({"matchConditions": [{"name": "c", "expression": "true"}] * 2}, "matchConditions[1].name"),
        ({"rules": [RULE | {"operations": ["READ"]}]}, "rules[0].operations[0]"),
        ({"rules": [RULE | {"operations": ["*", "CREATE"]}]}, "rules[0].operations"),
        ({"reinvocationPolicy": "Always"}, "reinvocationPolicy"),
    ],
)
def test_rules_and_conditions_are_validated(changes: Any, field: str) -> None:
    config = {"url": "https://127.0.0.1:1"}
    one = hook(clientConfig=config, admissionReviewVersions=["v1"], **changes)
    fields = [cause.field for cause in MutatingConfigurationStrategy().validate({"webhooks": [one]})]
    assert fields == [f"webhooks[0].{field}"]
