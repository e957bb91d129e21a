"""Asks the extender over HTTP, as kube-scheduler does with `nodeCacheCapable`: the names of Go's fields, POST, JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import aiohttp
import orjson

TIMEOUT_S: Final = 15.0
"""What the shipped configuration of kube-scheduler gives as `httpTimeout`."""


class ExtenderAwayError(Exception):
    """The extender did not answer, or does not lead."""


class ExtenderClient:
    """One extender; every method raises ExtenderAwayError."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def filter(self, pod: Mapping[str, Any], names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """The nodes that can take a pod, and the reason of each other one."""
        found = await self._ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": list(names)})
        if found["Error"]:
            raise ExtenderAwayError(found["Error"])
        failed = {**(found["FailedNodes"] or {}), **(found["FailedAndUnresolvableNodes"] or {})}
        return list(found["NodeNames"] or ()), failed

    async def prioritize(self, pod: Mapping[str, Any], names: Sequence[str]) -> dict[str, int]:
        """The scores of nodes."""
        found = await self._ask("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": list(names)})
        return {one["Host"]: one["Score"] for one in found}

    async def bind(self, pod: Mapping[str, Any], node: str) -> str:
        """Have a pod bound; returns the error, empty for none."""
        metadata = pod["metadata"]
        args = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        return str((await self._ask("bind", args))["Error"])

    async def _ask(self, verb: str, args: object) -> Any:  # noqa: ANN401 - each verb has its own answer
        headers = {"Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with self._session.post(
                f"{self._url}/{verb}", data=orjson.dumps(args), headers=headers, timeout=timeout
            ) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ExtenderAwayError(f"The extender at {self._url} does not answer {verb}: {error}") from error
        if answer.status != 200:
            raise ExtenderAwayError(f"failed {verb} with extender at URL {self._url}/{verb}, code {answer.status}")
        return orjson.loads(body)
