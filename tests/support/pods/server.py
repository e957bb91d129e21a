"""The embedded API server with what a real one has from kubelets: tokens that let pods in, logs, and `exec`."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import orjson
from aiohttp import web

from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.runtime.clock import system_clock
from support.kube_accounts import AccountServer
from support.pods.pod import RunningPod

ADMIN_TOKEN: Final = "administrator"
PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
OUTPUT, ERRORS, RESULT = b"\x01", b"\x02", b"\x03"
ACCOUNT: Final = "system:serviceaccount:"
PROXIED: Final = frozenset({"exec", "log"})

Find = Callable[[str, str], RunningPod | None]


class PodServer(AccountServer):
    """Asks `find` for the running pod of a namespace and name."""

    find: Find

    async def _routed(self, http: web.Request, warnings: list[str]) -> web.StreamResponse:
        token = http.headers.get("Authorization", "").partition(" ")[2]
        if token and token != ADMIN_TOKEN:
            return await super()._routed(http.clone(headers=self._named(http, token)), warnings)
        parts = http.path.strip("/").split("/")
        if parts[:3] == ["api", "v1", "namespaces"] and parts[4:5] == ["pods"] and parts[6:7] and parts[6] in PROXIED:
            return await self._proxied(http, parts[3], parts[5], parts[6])
        headers = http.headers.copy()
        headers.popall("Authorization", None)
        return await super()._routed(http.clone(headers=headers), warnings)

    def _named(self, http: web.Request, token: str) -> Any:
        """The headers with the name of the account in place of its token, and with what that says of its pod."""
        review = {"spec": {"token": token}}

        def find(plural: str, namespace: str, name: str) -> Any:
            return self.store.collection(("", plural)).get(namespace, name)

        status = self.writer.tokens.review(review, find, system_clock())["status"]
        if not status.get("authenticated"):
            raise ApiError(401, "Unauthorized", str(status["error"]))
        headers = http.headers.copy()
        headers["Authorization"] = f"Bearer {status['user']['username'].removeprefix(ACCOUNT)}"
        for name, values in status["user"].get("extra", {}).items():
            for value in values:
                headers.add(f"Impersonate-Extra-{quote(name, safe='')}", value)
        return headers

    async def _proxied(self, http: web.Request, namespace: str, name: str, what: str) -> web.StreamResponse:
        pod = self.find(namespace, name)
        if pod is None:
            raise ApiError(404, "NotFound", f'pods "{name}" is not running')
        container = http.query.get("container") or next(iter(pod.containers))
        if what == "log":
            return web.Response(body=pod.log(container).read_bytes(), content_type="text/plain")
        socket = web.WebSocketResponse(protocols=PROTOCOLS)
        await socket.prepare(http)
        command = http.query.getall("command")
        code, output, errors = await pod.execute(pod.containers[container], command)
        for channel, content in ((OUTPUT, output), (ERRORS, errors)):
            if content:
                await socket.send_bytes(channel + content)
        await socket.send_bytes(RESULT + orjson.dumps(_result(code, command)))
        await socket.close()
        return socket


def _result(code: int, command: list[str]) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"{shlex.join(command)}: exit code {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


class Places(Mapping[tuple[str, str], tuple[str, int]]):
    """Where the API server finds Services of pods; `find` looks one up at every call."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], tuple[str, int]] = {}

    def __getitem__(self, key: tuple[str, str]) -> tuple[str, int]:
        return self.found[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __bool__(self) -> bool:
        """It is in use even while it has nothing."""
        return True
