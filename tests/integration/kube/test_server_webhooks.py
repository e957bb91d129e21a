"""Admission webhooks, asked by an API server over HTTPS before it stores anything."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from gpuledger.local.kubeapi.tls import certificates
from gpuledger.runtime.clock import system_clock
from support.kube_http import CONFIGMAPS, JSON_PATCH, MERGE, Api, Json, configmap
from support.kube_server import HOST
from support.waiting import eventually

GROUP = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
SECRETS = CONFIGMAPS.replace("configmaps", "secrets")
IN_FORCE = "/in-force"
PROBE = {"in-force": "asked"}
REFUSED = 418

Decide = Callable[[Json], Json]


class Hooks:
    """A server of webhooks: what each path decides, and what it was asked."""

    def __init__(self, ca: bytes) -> None:
        self.url = ""
        self.reviews: list[Json] = []
        self._ca = base64.b64encode(ca).decode()
        self._decide: dict[str, Decide] = {}

    async def answer(self, http: web.Request) -> web.Response:
        review = await http.json()
        request = review["request"]
        if http.path == IN_FORCE:
            decided = refusing(request)
        else:
            self.reviews.append(request)
            decided = self._decide[http.path](request)
        decided = {"uid": request["uid"], "allowed": True} | decided
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": decided})

    async def register(self, api: Api, kind: str, decide: Decide, **more: Any) -> None:
        """Register a hook for writes of configmaps, and wait until the server asks it.

        A real server learns of a configuration a moment later than it accepts it.
        """
        path = f"/{len(self._decide)}"
        self._decide[path] = decide
        probe = self._hook(IN_FORCE, "secrets") | {"objectSelector": {"matchLabels": PROBE}}
        body = {"metadata": {"name": f"c{path[1:]}"}, "webhooks": [self._hook(path, "configmaps") | more, probe]}
        await api.made(f"{GROUP}/{kind.lower()}s", body)
        secret = {"metadata": {"generateName": "probe-", "labels": PROBE}}

        async def is_in_force() -> bool:
            return (await api("POST", f"{SECRETS}?dryRun=All", secret)).code == REFUSED

        await eventually(is_in_force)

    def _hook(self, path: str, plural: str) -> Json:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": [plural], "operations": ["*"]}
        return {
            "name": f"hook{path[1:]}.example.com",
            "rules": [rule],
            "clientConfig": {"url": self.url + path, "caBundle": self._ca},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 5,
        }


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[Hooks]:
    files = certificates(tmp_path, HOST, system_clock())
    found = Hooks(files.ca.read_bytes())
    app = web.Application()
    app.router.add_post("/{path}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0, ssl_context=files.server_context()).start()
    found.url = f"https://{HOST}:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


def labelling(_: Json) -> Json:
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]
    return {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}


def refusing(_: Json) -> Json:
    return {"allowed": False, "status": {"code": REFUSED, "message": "not today", "reason": "Teapot"}}


def agreeing(_: Json) -> Json:
    return {"warnings": ["mind the gap"]}


async def test_a_hook_changes_what_is_stored(api: Api, hooks: Hooks) -> None:
    await hooks.register(api, MUTATING, labelling)
    made = await api.made(CONFIGMAPS, configmap("c"))
    assert made["metadata"]["labels"] == {"seen": "yes"}
    assert (await api("GET", f"{CONFIGMAPS}/c")).body["metadata"]["labels"] == {"seen": "yes"}
    review = hooks.reviews[0]
    assert (review["operation"], review["name"], review["namespace"]) == ("CREATE", "c", "default")
    assert review["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert review["object"]["metadata"]["name"] == "c"
    assert review["oldObject"] is None


async def test_a_hook_refuses(api: Api, hooks: Hooks) -> None:
    await hooks.register(api, VALIDATING, refusing)
    answer = await api("POST", CONFIGMAPS, configmap("c"))
    assert answer.code == REFUSED
    assert 'admission webhook "hook0.example.com" denied the request: not today' in answer.body["message"]
    assert (await api("GET", f"{CONFIGMAPS}/c")).code == 404
    assert (await api("POST", SECRETS, {"metadata": {"name": "s"}})).code == 201


async def test_every_write_is_reviewed(api: Api, hooks: Hooks) -> None:
    await hooks.register(api, VALIDATING, agreeing)
    first = await api("POST", CONFIGMAPS, configmap("c"))
    assert first.headers["Warning"] == '299 - "mind the gap"'
    await api("PATCH", f"{CONFIGMAPS}/c", {"data": {"a": "b"}}, media=MERGE)
    await api("DELETE", f"{CONFIGMAPS}/c")
    assert [one["operation"] for one in hooks.reviews] == ["CREATE", "UPDATE", "DELETE"]
    assert hooks.reviews[1]["oldObject"].get("data") is None
    assert hooks.reviews[2]["object"] is None
    assert hooks.reviews[2]["oldObject"]["data"] == {"a": "b"}


async def test_a_deletion_may_be_refused(api: Api, hooks: Hooks) -> None:
    await api.made(CONFIGMAPS, configmap("c"))
    await hooks.register(api, VALIDATING, refusing)
    assert (await api("DELETE", f"{CONFIGMAPS}/c")).code == REFUSED
    assert (await api("DELETE", CONFIGMAPS)).code == REFUSED
    assert (await api("GET", f"{CONFIGMAPS}/c")).code == 200


@pytest.mark.parametrize(("policy", "code"), [("Fail", 500), ("Ignore", 201)])
async def test_a_hook_that_cannot_be_reached(api: Api, hooks: Hooks, policy: str, code: int) -> None:
    config = {"url": f"https://{HOST}:1/none", "caBundle": ""}
    await hooks.register(api, VALIDATING, agreeing, failurePolicy=policy, clientConfig=config)
    answer = await api("POST", CONFIGMAPS, configmap("c"))
    assert answer.code == code
    assert code == 201 or answer.body["reason"] == "InternalError"


@pytest.mark.parametrize("bundle", [{}, {"caBundle": ""}, {"caBundle": None}])
async def test_a_hook_without_a_bundle_keeps_none(api: Api, bundle: Json) -> None:
    hook = Hooks(b"")._hook("/0", "configmaps") | {"failurePolicy": "Ignore"}
    hook["clientConfig"] = {"url": f"https://{HOST}:1/none", **bundle}
    path = f"{GROUP}/{VALIDATING.lower()}s"
    made = await api.made(path, {"metadata": {"name": "c"}, "webhooks": [hook]})
    assert made["webhooks"][0]["clientConfig"] == {"url": f"https://{HOST}:1/none"}
    at = "/webhooks/0/clientConfig/caBundle"
    for value, kept in (("Cg==", "Cg=="), ("", None)):
        patch = [{"op": "add", "path": at, "value": value}]
        answer = await api("PATCH", f"{path}/c", patch, media=JSON_PATCH)
        assert answer.body["webhooks"][0]["clientConfig"].get("caBundle") == kept


async def test_a_hook_whose_certificate_is_not_trusted_fails(api: Api, hooks: Hooks, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    bundle = base64.b64encode(certificates(other, HOST, system_clock()).ca.read_bytes()).decode()
    await hooks.register(api, VALIDATING, agreeing, clientConfig={"url": f"{hooks.url}/0", "caBundle": bundle})
    assert (await api("POST", CONFIGMAPS, configmap("c"))).code == 500
    assert hooks.reviews == []


async def test_hooks_without_side_effects_see_a_dry_run(api: Api, hooks: Hooks) -> None:
    await hooks.register(api, VALIDATING, agreeing)
    assert (await api("POST", f"{CONFIGMAPS}?dryRun=All", configmap("c"))).code == 201
    assert hooks.reviews[0]["dryRun"] is True
    assert (await api("GET", f"{CONFIGMAPS}/c")).code == 404


async def test_a_patch_is_tried_again_where_a_hook_took_its_time(api: Api, hooks: Hooks) -> None:
    await api.made(CONFIGMAPS, configmap("c"))
    await hooks.register(api, MUTATING, labelling)
    first = api("PATCH", f"{CONFIGMAPS}/c", {"data": {"a": "1"}}, media=MERGE)
    second = api("PATCH", f"{CONFIGMAPS}/c", {"data": {"b": "2"}}, media=MERGE)
    assert {answer.code for answer in await asyncio.gather(first, second)} == {200}
    assert (await api("GET", f"{CONFIGMAPS}/c")).body["data"] == {"a": "1", "b": "2"}


async def test_hooks_choose_by_namespace_and_object(api: Api, hooks: Hooks) -> None:
    selector = {"matchLabels": {"watched": "yes"}}
    await hooks.register(api, VALIDATING, refusing, objectSelector=selector)
    assert (await api("POST", CONFIGMAPS, configmap("a"))).code == 201
    assert (await api("POST", CONFIGMAPS, configmap("b", labels={"watched": "yes"}))).code == REFUSED
    assert (
        await api("PATCH", f"{CONFIGMAPS}/a", {"metadata": {"labels": {"watched": "yes"}}}, media=MERGE)
    ).code == REFUSED
