"""What goes away with what in an API server: owners, namespaces, definitions, and what holds them."""

import pytest

from support.kube_http import (
    ANY,
    APPLY,
    CONFIGMAPS,
    CRDS,
    MERGE,
    THINGS,
    Api,
    Json,
    configmap,
    thing,
    thing_crd,
    thing_version,
)
from support.waiting import eventually

MANY = 300
NAMESPACES = "/api/v1/namespaces"
HELD = ["example.com/held"]
LET_GO = {"metadata": {"finalizers": None}}


COLLECTED = pytest.mark.embedded_only("dependents are collected by a controller")


def owned_by(owner: Json, **more: object) -> list[Json]:
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return [reference | more]


@COLLECTED
async def test_dependents_go_with_their_owner(things: Api) -> None:
    owner = await things.made(THINGS, thing("owner"))
    await things.made(CONFIGMAPS, configmap("dependent", ownerReferences=owned_by(owner)))
    other = await things.made(THINGS, thing("other"))
    both = [*owned_by(owner), *owned_by(other)]
    await things.made(CONFIGMAPS, configmap("shared", ownerReferences=both))
    assert (await things("DELETE", f"{THINGS}/owner")).code == 200
    await things.until(f"{CONFIGMAPS}/dependent", 404)
    kept = (await things("GET", f"{CONFIGMAPS}/shared")).body["metadata"]["ownerReferences"]
    assert [one["name"] for one in kept] == ["other"]


@COLLECTED
async def test_foreground_deletion_waits_for_dependents(things: Api) -> None:
    owner = await things.made(THINGS, thing("owner"))
    references = owned_by(owner, blockOwnerDeletion=True)
    await things.made(CONFIGMAPS, configmap("held", ownerReferences=references, finalizers=HELD))
    answer = await things("DELETE", f"{THINGS}/owner?propagationPolicy=Foreground")
    assert answer.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert (await things("GET", f"{THINGS}/owner")).code == 200
    assert (await things("GET", f"{CONFIGMAPS}/held")).body["metadata"]["deletionTimestamp"]
    await things("PATCH", f"{CONFIGMAPS}/held", LET_GO, media=MERGE)
    await things.until(f"{THINGS}/owner", 404)


@COLLECTED
async def test_foreground_deletion_waits_only_for_who_blocks_it(things: Api) -> None:
    owner = await things.made(THINGS, thing("owner"))
    await things.made(CONFIGMAPS, configmap("held", ownerReferences=owned_by(owner), finalizers=HELD))
    await things("DELETE", f"{THINGS}/owner?propagationPolicy=Foreground")
    await things.until(f"{THINGS}/owner", 404)
    assert (await things("GET", f"{CONFIGMAPS}/held")).body["metadata"]["deletionTimestamp"]


@COLLECTED
async def test_orphans_stay(things: Api) -> None:
    owner = await things.made(THINGS, thing("owner"))
    await things.made(CONFIGMAPS, configmap("orphan", ownerReferences=owned_by(owner)))
    await things("DELETE", f"{THINGS}/owner", {"kind": "DeleteOptions", "propagationPolicy": "Orphan"})
    await things.until(f"{THINGS}/owner", 404)
    assert "ownerReferences" not in (await things("GET", f"{CONFIGMAPS}/orphan")).body["metadata"]


@COLLECTED
async def test_who_names_an_owner_that_never_was_goes(things: Api) -> None:
    nobody = thing("nobody", uid="11111111-2222-3333-4444-555555555555")
    await things.made(CONFIGMAPS, configmap("dangling", ownerReferences=owned_by(nobody)))
    await things.until(f"{CONFIGMAPS}/dangling", 404)


@COLLECTED
async def test_an_owner_is_in_the_same_namespace(things: Api) -> None:
    await things.made(NAMESPACES, {"metadata": {"name": "other"}})
    owner = await things.made(THINGS, thing("owner"))
    elsewhere = CONFIGMAPS.replace("default", "other")
    await things.made(elsewhere, configmap("stray", ownerReferences=owned_by(owner)))
    await things.until(f"{elsewhere}/stray", 404)
    assert (await things("GET", f"{THINGS}/owner")).code == 200


@pytest.mark.embedded_only("a namespace is emptied by a controller")
async def test_a_namespace_goes_when_it_is_empty(things: Api) -> None:
    await things.made(NAMESPACES, {"metadata": {"name": "team"}})
    inside, held = CONFIGMAPS.replace("default", "team"), THINGS.replace("default", "team")
    await things.made(inside, configmap("a"))
    await things.made(held, thing("t", finalizers=HELD))
    assert (await things("DELETE", f"{NAMESPACES}/team")).body["status"]["phase"] == "Terminating"
    await things.until(f"{inside}/a", 404)
    refused = await things("POST", inside, configmap("late"))
    assert (refused.code, refused.causes) == (403, {("NamespaceTerminating", "metadata.namespace")})
    assert (await things("GET", f"{NAMESPACES}/team")).code == 200
    await things("PATCH", f"{held}/t", LET_GO, media=MERGE)
    await things.until(f"{NAMESPACES}/team", 404)


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_namespaces_of_the_cluster_stay(api: Api, name: str) -> None:
    answer = await api("DELETE", f"{NAMESPACES}/{name}")
    assert (answer.code, answer.body["reason"]) == (403, "Forbidden")


async def test_a_definition_takes_its_objects_along(things: Api) -> None:
    await things.made(THINGS, thing("free"))
    await things.made(THINGS, thing("held", finalizers=HELD))
    await things("DELETE", f"{CRDS}/things.example.com")
    await things.until(f"{THINGS}/free", 404)
    crd = (await things("GET", f"{CRDS}/things.example.com")).body
    assert crd["metadata"]["deletionTimestamp"]
    late = thing("late")
    applied = await things("PATCH", f"{THINGS}/late?fieldManager=a", late, media=APPLY)
    for refused in (await things("POST", THINGS, late), applied):
        assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
        assert refused.body["details"] == {"name": "late", "group": "example.com", "kind": "things"}
        assert "create not allowed while custom resource definition is terminating" in refused.body["message"]
    await things("PATCH", f"{THINGS}/held", LET_GO, media=MERGE)
    await things.until(f"{CRDS}/things.example.com", 404)
    answer = await things.until(THINGS, 404)
    assert answer.text == "404 page not found\n"


async def test_a_definition_may_come_back_empty(things: Api) -> None:
    await things.made(THINGS, thing("t"))
    await things("DELETE", f"{CRDS}/things.example.com")
    await things.until(f"{CRDS}/things.example.com", 404)
    await things.serve(thing_crd())
    assert (await things("GET", THINGS)).names == []


async def changed(api: Api, *versions: Json) -> None:
    patch = {"spec": {"versions": versions}}
    assert (await api("PATCH", f"{CRDS}/things.example.com", patch, media=MERGE)).code == 200


async def test_new_defaults_hold_for_old_objects(things: Api) -> None:
    await things.made(THINGS, thing("t"))
    with_default = {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}}
    await changed(things, thing_version(spec=with_default))

    async def is_filled() -> bool:
        return bool((await things("GET", f"{THINGS}/t")).body["spec"] == {"size": 3})

    await eventually(is_filled)


async def test_versions_of_a_definition_come_and_go(things: Api) -> None:
    await things.made(THINGS, thing("t"))
    await changed(things, thing_version(storage=False), thing_version("v2"))
    newer = THINGS.replace("/v1/", "/v2/")
    assert (await things.until(f"{newer}/t", 200)).body["apiVersion"] == "example.com/v2"
    status = (await things("GET", f"{CRDS}/things.example.com")).body["status"]
    assert status["storedVersions"] == ["v1", "v2"]
    async with things.watching(f"{THINGS}?watch=1") as watch:
        assert await watch.event() == ("ADDED", "t")
        await changed(things, thing_version(storage=False, served=False), thing_version("v2"))
        assert (await things.until(THINGS, 404)).text == "404 page not found\n"
        assert await watch.next() is None
    assert (await things("GET", newer)).names == ["t"]


async def test_a_version_that_is_removed_is_not_found(things: Api) -> None:
    await things.made(THINGS, thing("t"))
    await changed(things, thing_version(storage=False), thing_version("v2"))
    await things.until(THINGS.replace("/v1/", "/v2/"), 200)
    stored = {"status": {"storedVersions": ["v2"]}}
    assert (await things("PATCH", f"{CRDS}/things.example.com/status", stored, media=MERGE)).code == 200
    async with things.watching(f"{THINGS}?watch=1") as watch:
        assert await watch.event() == ("ADDED", "t")
        await changed(things, thing_version("v2"))
        await things.until("/apis/example.com/v1", 404)
        await things.until(THINGS, 404)
        assert await watch.next() is None
    for method, path in (("POST", THINGS), ("PUT", f"{THINGS}/t"), ("DELETE", f"{THINGS}/t"), ("GET", f"{THINGS}/t")):
        answer = await things(method, path, thing("t") if method in {"POST", "PUT"} else None)
        assert (answer.code, answer.text) == (404, "404 page not found\n")


async def test_a_watch_ends_with_the_definition(things: Api) -> None:
    await things.made(THINGS, thing("t"))
    async with things.watching(f"{THINGS}?watch=1") as watch:
        assert await watch.event() == ("ADDED", "t")
        await things("DELETE", f"{CRDS}/things.example.com")
        assert await watch.event() == ("DELETED", "t")
        assert await watch.next() is None


async def test_a_schema_that_is_none_is_refused(api: Api) -> None:
    crd = thing_crd(
        thing_version(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": {"items": ANY}}}})
    )
    assert (await api("POST", CRDS, crd)).code == 422


async def test_many_objects_are_deleted_together(api: Api) -> None:
    for index in range(MANY):
        await api.made(CONFIGMAPS, configmap(f"c{index}", labels={"odd": str(index % 2)}))
    dry = await api("DELETE", f"{CONFIGMAPS}?dryRun=All")
    assert len(dry.names) == len((await api("GET", CONFIGMAPS)).names) == MANY
    assert len((await api("DELETE", f"{CONFIGMAPS}?limit=10&labelSelector=odd%3D0")).names) == 10
    assert len((await api("DELETE", f"{CONFIGMAPS}?labelSelector=odd%3D1")).names) == MANY // 2
    assert len((await api("GET", CONFIGMAPS)).names) == MANY // 2 - 10


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"preconditions": {"uid": "other"}}, 409),
        ({"preconditions": {"resourceVersion": "1"}}, 409),
        ({"propagationPolicy": "Sideways"}, 422),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({"dryRun": ["Some"]}, 422),
        ({"gracePeriodSeconds": "soon"}, 400),
        ({"kind": "Pod", "apiVersion": "v1"}, 400),
        ("{", 400),
        ("[]", 400),
        ({"gracePeriodSeconds": -1}, 200),
        ({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}, 200),
    ],
)
async def test_options_of_a_deletion(api: Api, options: object, code: int) -> None:
    await api.made(CONFIGMAPS, configmap("c"))
    answer = await api("DELETE", f"{CONFIGMAPS}/c", options)
    assert answer.code == code
    assert code != 400 or answer.body["reason"] == "BadRequest"


async def test_options_of_a_deletion_may_be_yaml(api: Api) -> None:
    await api.made(CONFIGMAPS, configmap("c"))
    options = "apiVersion: v1\nkind: DeleteOptions\ndryRun: [All]\n"
    assert (await api("DELETE", f"{CONFIGMAPS}/c", options, media="application/yaml")).code == 200
    assert (await api("GET", f"{CONFIGMAPS}/c")).code == 200
