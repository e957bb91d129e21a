"""Plain HTTP to a Kubernetes API, for tests of the server itself: nothing of it is hidden by a client."""

import asyncio
import io
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson

from support.kube_server import KubeServer
from support.waiting import eventually

Json = dict[str, Any]

DEADLINE_S = 60.0
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

DEFAULT = "/api/v1/namespaces/default"
CONFIGMAPS = f"{DEFAULT}/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"

ANY: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Answer(NamedTuple):
    """What the server said. `body` is empty where it was no JSON."""

    code: int
    body: Json
    headers: Any
    text: str

    @property
    def version(self) -> str:
        """The resourceVersion of an object or a list."""
        version: str = self.body["metadata"]["resourceVersion"]
        return version

    @property
    def names(self) -> list[str]:
        """The names in a list."""
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def causes(self) -> set[tuple[str, str]]:
        """Reasons and fields of what is wrong with an object."""
        return {(cause["reason"], cause.get("field", "")) for cause in self.body["details"]["causes"]}


class Api:
    """Sends requests."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def __call__(
        self, method: str, path: str, body: object = None, *, media: str = "application/json", **headers: str
    ) -> Answer:
        """Send a request; a body that is no text is sent as JSON. Underscores in names of headers are dashes."""
        data = None if body is None else io.BytesIO(_bytes(body))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = named | ({"Content-Type": media} if data is not None else {})
        async with asyncio.timeout(DEADLINE_S), self.session.request(method, path, data=data, headers=sent) as response:
            text = await response.text()
            document = orjson.loads(text) if response.content_type == "application/json" and text else {}
            return Answer(response.status, document, response.headers, text)

    async def made(self, path: str, body: Json) -> Json:
        """Create an object that must be accepted."""
        answer = await self("POST", path, body)
        assert answer.code == 201, answer.text
        return answer.body

    async def serve(self, crd: Json) -> None:
        """Create a CRD, and wait until its first version is served."""
        await self.made(CRDS, crd)
        spec = crd["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        await eventually(lambda: self.is_watched(path))

    async def is_watched(self, path: str) -> bool:
        """Whether a resource can be watched; that comes last, and a real server answers 429 until then."""
        async with self.session.get(path, params={"watch": "1"}) as response:
            return response.status == 200

    async def until(self, path: str, code: int) -> Answer:
        """Get a path until it is answered so."""
        found: list[Answer] = []

        async def holds() -> bool:
            found[:] = [await self("GET", path)]
            return found[0].code == code

        await eventually(holds)
        return found[0]

    @asynccontextmanager
    async def watching(self, path: str, **headers: str) -> AsyncIterator["Watch"]:
        """A watch that is open until the block ends."""
        async with self.session.get(path, headers=headers) as response:
            assert response.status == 200, await response.text()
            yield Watch(response)


class Watch:
    """An open watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> Json | None:
        """The next event; None at the end."""
        async with asyncio.timeout(DEADLINE_S):
            line = await self._response.content.readline()
        event: Json | None = orjson.loads(line) if line else None
        return event

    async def event(self) -> tuple[str, str]:
        """Type and name of the next event."""
        event = await self.next()
        assert event is not None
        return event["type"], event["object"]["metadata"].get("name", "")


@asynccontextmanager
async def api_of(server: KubeServer, **more: Any) -> AsyncIterator[Api]:
    """Requests to a server by its administrator."""
    async with session_of(server, **more) as session:
        yield Api(session)


@asynccontextmanager
async def session_of(
    server: KubeServer, *, ca: Path | None = None, **more: Any
) -> AsyncIterator[aiohttp.ClientSession]:
    """As many connections to a server as a test needs, with its administrator's credentials.

    `ca` is trusted in place of the server's own authority.
    """
    trusted = ca or server.ca
    context = ssl.create_default_context(cafile=str(trusted)) if trusted else True
    headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    no_limit = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        server.url, connector=connector, headers=headers, timeout=no_limit, **more
    ) as session:
        yield session


def _bytes(body: object) -> bytes:
    if isinstance(body, str):
        return body.encode()
    return body if isinstance(body, bytes) else orjson.dumps(body)


def configmap(name: str, **more: Any) -> Json:
    """A configmap; what is given goes into its metadata."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **more}}


def thing(name: str, spec: Json | None = None, version: str = "v1", **more: Any) -> Json:
    """An object of `thing_crd`; what is given goes into its metadata."""
    meta: Json = {"name": name, **more}
    return {"apiVersion": f"example.com/{version}", "kind": "Thing", "metadata": meta, "spec": spec or {}}


def thing_version(name: str = "v1", spec: Json | None = None, **more: Any) -> Json:
    """A version of `thing_crd`, with a status of its own."""
    schema = {"type": "object", "properties": {"spec": spec or ANY, "status": ANY}}
    return {
        "name": name,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    } | more


def thing_crd(*versions: Json) -> Json:
    """A CRD of namespaced things."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": list(versions) or [thing_version()],
        },
    }
