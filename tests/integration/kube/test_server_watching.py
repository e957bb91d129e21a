"""Watches of an API server: what they are told, when they end, and how many there may be."""

import asyncio
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from gpuledger.local.kubeapi.server import ApiServer
from support.kube import kube_api
from support.kube_http import CONFIGMAPS, MERGE, THINGS, Api, api_of, configmap, session_of, thing, thing_crd
from support.kube_server import KubeServer, NewKube
from support.waiting import eventually

WATCHERS = 100
STOP_MAX_S = 15.0
BOOKMARKED_S = 4
"""A real server sends a bookmark two seconds before a watch's time is over."""


async def labelled(api: Api, name: str, label: str | None) -> None:
    answer = await api("PATCH", f"{CONFIGMAPS}/{name}", {"metadata": {"labels": {"a": label}}}, media=MERGE)
    assert answer.code == 200


async def test_a_watch_goes_on_where_a_list_ended(api: Api) -> None:
    await api.made(CONFIGMAPS, configmap("a"))
    version = (await api("GET", CONFIGMAPS)).version
    await labelled(api, "a", "x")
    await api.made(CONFIGMAPS, configmap("b"))
    await api("DELETE", f"{CONFIGMAPS}/a")
    async with api.watching(f"{CONFIGMAPS}?watch=1&resourceVersion={version}") as watch:
        assert [await watch.event() for _ in range(3)] == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
        await api.made(CONFIGMAPS, configmap("c"))
        assert await watch.event() == ("ADDED", "c")


async def test_a_selection_is_entered_and_left(api: Api) -> None:
    await api.made(CONFIGMAPS, configmap("a"))
    async with api.watching(f"{CONFIGMAPS}?watch=1&labelSelector=a%3Dx") as watch:
        await labelled(api, "a", "x")
        await labelled(api, "a", None)
        await labelled(api, "a", "x")
        await api("DELETE", f"{CONFIGMAPS}/a")
        assert [(await watch.event())[0] for _ in range(4)] == ["ADDED", "DELETED", "ADDED", "DELETED"]


async def test_a_revision_that_is_forgotten_has_expired(kube: KubeServer) -> None:
    async with api_of(kube) as api:
        version = (await api.made(CONFIGMAPS, configmap("a")))["metadata"]["resourceVersion"]
        await labelled(api, "a", "x")
    await kube.forget_history()
    async with api_of(kube) as api:
        async with api.watching(f"{CONFIGMAPS}?watch=1&resourceVersion={version}") as watch:
            event = await watch.next()
            assert event is not None
            assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
            assert await watch.next() is None
        recent = (await api("GET", CONFIGMAPS)).version
        await labelled(api, "a", "last")
        async with api.watching(f"{CONFIGMAPS}?watch=1&resourceVersion={recent}") as watch:
            assert await watch.event() == ("MODIFIED", "a")


@pytest.mark.embedded_only("how many changes it keeps is a setting of the embedded server")
async def test_only_so_many_changes_are_kept(tmp_path: Path) -> None:
    async with (
        kube_api(tmp_path, ApiServer(changes_kept=3)) as kube,
        aiohttp.ClientSession(kube.url) as session,
    ):
        api = Api(session)
        version = int((await api.made(CONFIGMAPS, configmap("a")))["metadata"]["resourceVersion"])
        for index in range(12):
            await labelled(api, "a", str(index))
        async with api.watching(f"{CONFIGMAPS}?watch=1&resourceVersion={version}") as watch:
            event = await watch.next()
            assert event is not None
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        recent = (await api("GET", f"{CONFIGMAPS}/a")).version
        await labelled(api, "a", "last")
        async with api.watching(f"{CONFIGMAPS}?watch=1&resourceVersion={recent}") as watch:
            assert await watch.event() == ("MODIFIED", "a")


async def test_a_watch_from_the_future_waits_for_it(api: Api) -> None:
    ahead = int((await api("GET", CONFIGMAPS)).version) + 1
    async with api.watching(f"{CONFIGMAPS}?watch=1&resourceVersion={ahead}") as watch:
        made = [(await api.made(CONFIGMAPS, configmap(name)))["metadata"] for name in ("a", "b")]
        first = next(meta["name"] for meta in made if int(meta["resourceVersion"]) > ahead)
        assert await watch.event() == ("ADDED", first)


async def test_a_watch_ends_in_time(api: Api) -> None:
    async with api.watching(f"{CONFIGMAPS}?watch=1&timeoutSeconds=1") as watch:
        assert await watch.next() is None


async def test_bookmarks_show_how_far_a_watch_is(new_kube: NewKube) -> None:
    async with api_of(await new_kube(bookmark_every_s=0.01)) as api:
        made = int((await api.made(CONFIGMAPS, configmap("a")))["metadata"]["resourceVersion"])
        query = f"watch=1&allowWatchBookmarks=true&fieldSelector=metadata.name%3Dnone&timeoutSeconds={BOOKMARKED_S}"
        async with api.watching(f"{CONFIGMAPS}?{query}") as watch:
            event = await watch.next()
            assert event is not None
            assert event["type"] == "BOOKMARK"
            version = int(event["object"]["metadata"]["resourceVersion"])
            assert made <= version <= int((await api("GET", CONFIGMAPS)).version)


async def test_a_watch_may_begin_with_a_list(api: Api) -> None:
    await api.made(CONFIGMAPS, configmap("a"))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with api.watching(f"{CONFIGMAPS}?{query}") as watch:
        assert await watch.event() == ("ADDED", "a")
        end = await watch.next()
        assert end is not None
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_tables_are_watched(api: Api) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    async with api.watching(f"{CONFIGMAPS}?watch=1", Accept=accept) as watch:
        await api.made(CONFIGMAPS, configmap("a"))
        await api.made(CONFIGMAPS, configmap("b"))
        first, second = await watch.next(), await watch.next()
        assert first is not None
        assert second is not None
        assert (bool(first["object"]["columnDefinitions"]), second["object"]["columnDefinitions"]) == (True, None)
        assert [event["object"]["rows"][0]["cells"][0] for event in (first, second)] == ["a", "b"]


async def test_many_watch_the_same(api: Api) -> None:
    await api.serve(thing_crd())

    async def seen(ready: asyncio.Semaphore) -> list[tuple[str, str]]:
        async with api.watching(f"{THINGS}?watch=1") as watch:
            ready.release()
            return [await watch.event() for _ in range(20)]

    ready = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        watchers = [group.create_task(seen(ready)) for _ in range(WATCHERS)]
        for _ in range(WATCHERS):
            await ready.acquire()
        for index in range(20):
            await api.made(THINGS, thing(f"t{index}"))
    assert {tuple(watcher.result()) for watcher in watchers} == {tuple(("ADDED", f"t{index}") for index in range(20))}


@pytest.mark.embedded_only("it asks the embedded server how many watches are open")
async def test_a_client_that_goes_away_frees_its_watch(tmp_path: Path) -> None:
    async with kube_api(tmp_path) as kube:

        async def is_free() -> bool:
            return kube.server.watches == 0

        async with aiohttp.ClientSession(kube.url) as session:
            api = Api(session)
            async with api.watching(f"{CONFIGMAPS}?watch=1") as watch:
                await api.made(CONFIGMAPS, configmap("a"))
                assert await watch.event() == ("ADDED", "a")
                assert kube.server.watches == 1
        await eventually(is_free)


async def test_the_server_stops_though_it_is_watched(kube: KubeServer) -> None:
    async with asyncio.timeout(STOP_MAX_S), session_of(kube) as session:
        response = await session.get(f"{CONFIGMAPS}?watch=1")
        await kube.stop()
        with suppress(aiohttp.ClientError):
            assert await response.content.read() == b""
        response.close()
