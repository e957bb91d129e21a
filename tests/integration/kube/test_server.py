"""An API server over HTTP: reading, writing and being refused."""

import asyncio
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

from gpuledger.local.kubeapi.server import BODY_BYTES_MAX
from gpuledger.local.kubeapi.tls import certificates
from gpuledger.runtime.clock import system_clock
from support.kube_http import (
    APPLY,
    CONFIGMAPS,
    DEFAULT,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    THINGS,
    Api,
    api_of,
    configmap,
    thing,
)
from support.kube_server import HOST, KubeServer, NewKube
from support.waiting import eventually

NAMES = [f"c{index:02}" for index in range(7)]
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


UNSERVED = pytest.mark.embedded_only("it says what the embedded server does not implement")
JSON_ALONE = pytest.mark.embedded_only("only the embedded server never answers in protobuf")


async def test_pages_show_one_moment(api: Api) -> None:
    for name in NAMES:
        await api.made(CONFIGMAPS, configmap(name))
    first = await api("GET", f"{CONFIGMAPS}?limit=3")
    assert first.body["metadata"]["remainingItemCount"] == 4
    await api("DELETE", f"{CONFIGMAPS}/c04")
    await api.made(CONFIGMAPS, configmap("c045"))
    await api("PATCH", f"{CONFIGMAPS}/c05", {"data": {"new": "yes"}}, media=MERGE)
    seen, page = first.names, first
    while token := page.body["metadata"].get("continue"):
        page = await api("GET", f"{CONFIGMAPS}?limit=3&continue={token}")
        assert page.version == first.version
        assert not any("data" in item for item in page.body["items"])
        seen += page.names
    assert seen == NAMES


async def test_a_list_may_name_its_revision(api: Api) -> None:
    await api.made(CONFIGMAPS, configmap("a"))
    version = (await api("GET", CONFIGMAPS)).version
    await api.made(CONFIGMAPS, configmap("b"))
    exact = f"{CONFIGMAPS}?resourceVersion={version}&resourceVersionMatch=Exact"
    assert (await api("GET", exact)).names == ["a"]
    assert (await api("GET", f"{CONFIGMAPS}?resourceVersion={version}&limit=5")).names == ["a"]
    for query in ("resourceVersion=0", "resourceVersion=0&limit=1", f"resourceVersion={version}"):

        async def shows_both(query: str = query) -> bool:
            return (await api("GET", f"{CONFIGMAPS}?{query}")).names == ["a", "b"]

        await eventually(shows_both)  # these may be answered from a cache
    late = await api("GET", f"{CONFIGMAPS}?resourceVersion=99999999")
    assert (late.code, late.body["reason"], late.headers["Retry-After"]) == (504, "Timeout", "1")
    assert (await api("GET", f"{CONFIGMAPS}/a?resourceVersion=99999999")).code == 504


async def test_a_past_that_is_forgotten_has_expired(kube: KubeServer) -> None:
    async with api_of(kube) as api:
        for name in NAMES[:3]:
            await api.made(CONFIGMAPS, configmap(name))
        page = await api("GET", f"{CONFIGMAPS}?limit=1")
        await api("PATCH", f"{CONFIGMAPS}/c00", {"data": {"n": "1"}}, media=MERGE)
    await kube.forget_history()
    exact = f"resourceVersion={page.version}&resourceVersionMatch=Exact"
    async with api_of(kube) as api:
        for query in (f"limit=1&continue={page.body['metadata']['continue']}", exact):
            answer = await api("GET", f"{CONFIGMAPS}?{query}")
            assert (answer.code, answer.body["reason"]) == (410, "Expired")


async def test_patches_at_the_same_time_all_count(things: Api) -> None:
    await things.made(THINGS, thing("t"))
    patches = ({"spec": {f"k{index}": index}} for index in range(50))
    answers = await asyncio.gather(*(things("PATCH", f"{THINGS}/t", patch, media=MERGE) for patch in patches))
    assert {answer.code for answer in answers} == {200}
    assert len((await things("GET", f"{THINGS}/t")).body["spec"]) == 50


async def test_of_two_replacements_of_the_same_state_one_conflicts(things: Api) -> None:
    made = await things.made(THINGS, thing("t"))
    answers = await asyncio.gather(*(things("PUT", f"{THINGS}/t", made | {"spec": {"n": n}}) for n in range(2)))
    assert sorted(answer.code for answer in answers) == [200, 409]


@pytest.mark.parametrize(
    ("body", "media", "code"),
    [
        ("", "application/json", 400),
        ("{", "application/json", 400),
        ("[]", "application/json", 400),
        ('{"apiVersion":"example.com/v1","kind":"Thing","metadata":[]}', "application/json", 400),
        ('{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"labels":{"a":1}}}', "application/json", 400),
        ('{"apiVersion":"example.com/v1","kind":"Thing","metadata":null}', "application/json", 422),
        ('{"apiVersion":"example.com/v1","kind":"Other","metadata":{"name":"a"}}', "application/json", 422),
        ('{"apiVersion":"example.com/v9","kind":"Thing","metadata":{"name":"a"}}', "application/json", 400),
        ("{" + '"a":{' * 2000 + "}" * 2001, "application/json", 400),
        ('{"spec":' + '{"a":' * 300 + "1" + "}" * 301, "application/json", 400),
        ("a: &a [*a]", "application/yaml", 400),
        ("a: " + "[" * 3000, "application/yaml", 400),
        ("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: x}\nspec: {n: 1}", "application/yaml", 201),
        ("x", "text/plain", 415),
        ("x", "application/cbor", 415),
        ("k8s\0\xff", "application/vnd.kubernetes.protobuf", 415),
        ("x" * (BODY_BYTES_MAX + 1), "application/json", 413),
    ],
)
async def test_what_cannot_be_read_is_refused(things: Api, body: str, media: str, code: int) -> None:
    answer = await things("POST", THINGS, body.encode("latin1"), media=media)
    assert answer.code == code, answer.text
    assert answer.body["kind"] == ("Status" if code >= 400 else "Thing")


async def test_numbers_that_json_cannot_hold_are_floats(things: Api) -> None:
    body = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: big}\nspec: {a: 99999999999999999999999}"
    assert (await things("POST", THINGS, body, media="application/yaml")).body["spec"] == {"a": 1e23}
    head = '"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"e"}'
    answer = await things("POST", THINGS, f'{{{head},"spec":{{"a":1e3,"b":9223372036854775807}}}}')
    assert answer.body["spec"] == {"a": 1000, "b": 9223372036854775807}


async def test_a_field_written_twice_is_reported(things: Api) -> None:
    text = '{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"d"},"spec":{"a":1,"a":2}}'
    answer = await things("POST", THINGS, text)
    assert 'duplicate field \\"spec.a\\"' in answer.headers["Warning"]
    assert (await things("POST", f"{THINGS}?fieldValidation=Strict", text.replace('"d"', '"e"'))).code == 400


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("text/html", 406),
        pytest.param("application/vnd.kubernetes.protobuf", 406, marks=JSON_ALONE),
        pytest.param("application/vnd.kubernetes.protobuf, application/json", 200, marks=JSON_ALONE),
        ("application/json;as=Table;v=v9;g=meta.k8s.io", 406),
        ("application/json;as=Table;v=v9;g=meta.k8s.io, application/json", 200),
        ("*/*", 200),
    ],
)
async def test_what_cannot_be_answered_is_refused(api: Api, accept: str, code: int) -> None:
    assert (await api("GET", CONFIGMAPS, Accept=accept)).code == code


async def test_a_watch_is_never_yaml(api: Api) -> None:
    assert (await api("GET", f"{CONFIGMAPS}?watch=1", Accept="application/yaml")).code == 406


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        pytest.param("GET", f"{DEFAULT}/pods/p/log", 501, marks=UNSERVED),
        pytest.param("POST", f"{DEFAULT}/pods/p/exec", 501, marks=UNSERVED),
        pytest.param("POST", f"{DEFAULT}/pods/p/portforward", 501, marks=UNSERVED),
        pytest.param("GET", "/api/v1/nodes/n/proxy/metrics", 501, marks=UNSERVED),
        pytest.param("GET", f"{DEFAULT}/services/s/proxy/a/b", 501, marks=UNSERVED),
        ("GET", f"{DEFAULT}/pods/p/nothing", 404),
        ("GET", "/api/v1/nonsense", 404),
        ("GET", "/nonsense", 404),
        ("HEAD", CONFIGMAPS, 405),
        ("OPTIONS", CONFIGMAPS, 405),
        ("PUT", CONFIGMAPS, 405),
        ("PATCH", CONFIGMAPS, 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("DELETE", "/api/v1/configmaps", 405),
        ("POST", "/version", 405),
        ("HEAD", THINGS, 200),
        ("PUT", THINGS, 400),
        ("PATCH", THINGS, 400),
        ("DELETE", "/apis/example.com/v1/things", 404),
        ("POST", "/apis/example.com/v1/things", 404),
        ("GET", f"{THINGS}/t/scale", 404),
        ("DELETE", f"{THINGS}/t/status", 405),
    ],
)
async def test_what_is_not_there_or_not_done(things: Api, method: str, path: str, code: int) -> None:
    body: object = {} if method in {"POST", "PUT", "PATCH"} else None
    assert (await things(method, path, body, media=MERGE if method == "PATCH" else "application/json")).code == code


@pytest.mark.parametrize("selector", ["((", "a in (", "a=b c", "=", "a notin (", "!", "a" * 64])
async def test_a_label_selector_that_is_none_is_refused(api: Api, selector: str) -> None:
    for query in (f"labelSelector={quote(selector)}", f"watch=1&labelSelector={quote(selector)}"):
        assert (await api("GET", f"{CONFIGMAPS}?{query}")).code == 400
    assert (await api("DELETE", f"{CONFIGMAPS}?labelSelector={quote(selector)}")).code == 400


@pytest.mark.parametrize(("selector", "names"), [("a notin ()", ["set", "unset"]), ("a in ()", ["empty"])])
async def test_a_set_without_values_holds_the_empty_one(api: Api, selector: str, names: list[str]) -> None:
    for name, labels in (("set", {"a": "x"}), ("empty", {"a": ""}), ("unset", {})):
        await api.made(CONFIGMAPS, configmap(name, labels={"of": "this-test", **labels}))
    query = quote(f"of=this-test,{selector}")
    assert (await api("GET", f"{CONFIGMAPS}?labelSelector={query}")).names == names
    assert (await api("DELETE", f"{CONFIGMAPS}?labelSelector={query}")).code == 200


@pytest.mark.parametrize("selector", ["spec=1", "metadata.name", "metadata.name==a==b", "data.a=b"])
async def test_a_field_selector_that_is_none_is_refused(api: Api, selector: str) -> None:
    assert (await api("GET", f"{CONFIGMAPS}?fieldSelector={quote(selector)}")).code == 400


@pytest.mark.parametrize(
    ("media", "patch", "code"),
    [
        (MERGE, {"data": {"a": 5}}, 422),
        (STRATEGIC, {"data": {"a": 5}}, 422),
        (JSON_PATCH, [{"op": "add", "path": "/data", "value": []}], 422),
        (JSON_PATCH, [{"op": "remove", "path": "/none"}], 422),
        (JSON_PATCH, [{"op": "test", "path": "/kind", "value": "ConfigMap"}], 200),
        (JSON_PATCH, {}, 400),
        (MERGE, [1], 400),
        (MERGE, "{", 400),
        (MERGE, {"kind": "Secret"}, 422),
        (MERGE, {"metadata": {"name": "other"}}, 400),
        (MERGE, {"metadata": {"namespace": "other"}}, 400),
        (MERGE, {"metadata": None}, 400),
        (MERGE, {"metadata": {"resourceVersion": "1"}}, 409),
        (MERGE, {"metadata": {"labels": {"a": "!"}}}, 422),
        ("application/json", {}, 415),
    ],
)
async def test_patches_that_do_not_fit(api: Api, media: str, patch: object, code: int) -> None:
    await api.made(CONFIGMAPS, configmap("c"))
    assert (await api("PATCH", f"{CONFIGMAPS}/c", patch, media=media)).code == code


@pytest.mark.parametrize(
    ("media", "patch"),
    [
        (MERGE, {"metadata": {"uid": "other"}}),
        (STRATEGIC, {"metadata": {"uid": "other"}}),
        (JSON_PATCH, [{"op": "replace", "path": "/metadata/uid", "value": "other"}]),
        (APPLY, configmap("c", uid="other")),
    ],
)
async def test_no_patch_changes_who_an_object_is(api: Api, media: str, patch: object) -> None:
    made = await api.made(CONFIGMAPS, configmap("c"))
    path = f"{CONFIGMAPS}/c" + ("?fieldManager=a" if media == APPLY else "")
    answer = await api("PATCH", path, patch, media=media)
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert answer.causes == {("FieldValueInvalid", "metadata.uid")}
    replaced = await api("PUT", f"{CONFIGMAPS}/c", configmap("c", uid="other"))
    assert (replaced.code, replaced.body["reason"]) == (409, "Conflict")
    assert (await api("GET", f"{CONFIGMAPS}/c")).body["metadata"]["uid"] == made["metadata"]["uid"]


async def test_the_status_of_a_custom_resource_takes_no_uid(things: Api) -> None:
    made = await things.made(THINGS, thing("t"))
    patch = {"metadata": {"uid": "other"}, "status": {"ok": True}}
    answer = await things("PATCH", f"{THINGS}/t/status", patch, media=MERGE)
    assert (answer.code, answer.body["metadata"]["uid"]) == (200, made["metadata"]["uid"])


async def test_applying_keeps_owners_and_reports_conflicts(things: Api) -> None:
    def config(value: int) -> dict[str, object]:
        return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"n": value}}

    async def applied(who: str, value: int, more: str = "") -> tuple[int, dict[str, object]]:
        answer = await things("PATCH", f"{THINGS}/t?fieldManager={who}{more}", config(value), media=APPLY)
        return answer.code, answer.body

    assert (await applied("a", 1, "&dryRun=All"))[0] == 201
    assert (await things("GET", f"{THINGS}/t")).code == 404
    assert (await applied("a", 1))[0] == 201
    code, refusal = await applied("b", 2)
    assert (code, refusal["reason"]) == (409, "Conflict")
    assert (await applied("b", 2, "&force=true"))[0] == 200
    status = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "status": {"ok": True}}
    answer = await things("PATCH", f"{THINGS}/t/status?fieldManager=c", status, media=APPLY)
    assert (answer.body["spec"], answer.body["status"]) == ({"n": 2}, {"ok": True})
    owners = {(one["manager"], one.get("subresource")) for one in answer.body["metadata"]["managedFields"]}
    assert owners == {("b", None), ("c", "status")}


async def test_an_applied_object_has_a_name(things: Api) -> None:
    body = {"apiVersion": "example.com/v1", "kind": "Thing"}
    assert (await things("PATCH", f"{THINGS}/t?fieldManager=a", body, media=APPLY)).code == 400


async def test_names_are_made_of_prefixes(things: Api) -> None:
    made = [await things.made(THINGS, thing("", generateName="t-")) for _ in range(20)]
    names = {one["metadata"]["name"] for one in made}
    assert len(names) == 20
    assert {len(name) for name in names} == {7}


async def test_a_cluster_wide_object_loses_a_namespace(api: Api) -> None:
    made = await api.made("/api/v1/nodes", {"metadata": {"name": "n", "namespace": "default"}})
    assert "namespace" not in made["metadata"]


@pytest.mark.parametrize(("include", "has"), [("None", False), ("Metadata", True), ("Object", True)])
async def test_rows_of_tables_hold_what_is_requested(api: Api, include: str, *, has: bool) -> None:
    await api.made(CONFIGMAPS, configmap("c"))
    answer = await api("GET", f"{CONFIGMAPS}?includeObject={include}", Accept=TABLE)
    held = answer.body["rows"][0].get("object")
    assert bool(held) is has
    assert not held or held["kind"] == {"Metadata": "PartialObjectMetadata", "Object": "ConfigMap"}[include]


async def test_https_is_served_by_a_ca_that_clients_can_verify(new_kube: NewKube, tmp_path: Path) -> None:
    kube = await new_kube(secure=True)
    others = certificates(tmp_path / "others", HOST, system_clock())
    async with api_of(kube) as api:
        assert (await api("GET", "/readyz")).text == "ok"
    async with api_of(kube, ca=others.ca) as api:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await api("GET", "/readyz")
