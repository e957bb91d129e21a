"""Lists one kind of object and watches every change after the list, for as long as somebody reads.

The changes are complete and in order. A broken stream resumes after the last resource version; where the server no
longer has that version the reflector lists the kind again and yields the whole list, so that the reader sees what was
deleted meanwhile. Errors are yielded too, never swallowed; reading on waits and retries. This module must keep no
objects: the reader does.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from gpuledger.api.kinds import Resource
from gpuledger.edge.kube.client import ALL, Batch, KubeClient, Object, Selection
from gpuledger.edge.kube.errors import KubeConfigError, KubeError, ResponseError, TransientError
from gpuledger.runtime.backoff import Backoff, Jitter, Retries, system_jitter
from gpuledger.runtime.clock import Sleep

T = TypeVar("T")

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

BOOKMARK: Final = "BOOKMARK"
CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """All objects that exist; any other that the reader has was deleted."""

    objects: list[T]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    """One object came, changed or went (then as it last was)."""

    type: ChangeType
    object: T


@dataclass(frozen=True, slots=True)
class ChangeBatch(Generic[T]):
    """Changes that came together, in order."""

    changes: tuple[Changed[T], ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A request failed, or a stream broke; after `pause_s` the reflector retries, and nothing is lost."""

    error: KubeError
    pause_s: float


class Reflector(Generic[T]):
    """Lists and watches one kind of object; readers get what `read` returns for each object.

    The jitter and the way to wait are arguments, so that tests decide about them.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        read: Callable[[Object], T],
        *,
        selection: Selection = ALL,
        backoff: Backoff | None = None,
        jitter: Jitter = system_jitter,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._client = client
        self._resource = resource
        self._read = read
        self._selection = selection
        self._retries = Retries(backoff or Backoff(), jitter)
        self._jitter = jitter
        self._sleep = sleep
        self._version: str | None = None

    async def run(self) -> AsyncGenerator[Listed[T] | ChangeBatch[T] | Interrupted]:
        """Follow for ever. Close the iterator (`contextlib.aclosing`), or cancel the task, to stop."""
        while True:
            try:
                async with aclosing(self._round()) as seen:
                    async for one in seen:
                        yield one
            except KubeError as error:
                if not isinstance(error, TransientError | KubeConfigError):
                    self._version = None
                pause_s = self._pause_s(error)
                yield Interrupted(error, pause_s)
            else:
                pause_s = self._pause_s(None)
            await self._sleep(pause_s)

    async def _round(self) -> AsyncGenerator[Listed[T] | ChangeBatch[T]]:
        """One list where it is needed, then one stream."""
        if self._version is None:
            listing = await self._client.collect(self._resource, self._read, self._selection)
            self._version = listing.resource_version
            yield Listed(listing.items, listing.resource_version)
        async with aclosing(self._stream(self._version)) as stream:
            async for changes in stream:
                yield changes

    async def _stream(self, version: str) -> AsyncGenerator[ChangeBatch[T]]:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        stream = self._client.watch(self._resource, version, self._selection, timeout_s=self._stream_timeout_s())
        try:
            async with aclosing(stream):
                async for batch in stream:
                    self._retries.reset()
                    if changes := self._taken(batch):
                        yield changes
        finally:
            if loop.time() - begun_s >= self._retries.backoff.healthy_after_s:
                self._retries.reset()

    def _taken(self, batch: Batch) -> ChangeBatch[T] | None:
        """The changes of a batch; the version is remembered first, so that no change is yielded twice."""
        changes = tuple(self._changes(batch))
        self._version = _version(batch[-1])
        return ChangeBatch(changes, self._version) if changes else None

    def _changes(self, batch: Batch) -> Iterator[Changed[T]]:
        for event in batch:
            kind = event.get("type")
            if kind in CHANGES:
                yield Changed(kind, self._read(event["object"]))
            elif kind != BOOKMARK:
                raise ResponseError(f"{self._client.url} sent an event of the unknown type {kind!r}. Report it.")

    def _pause_s(self, error: KubeError | None) -> float:
        return self._retries.pause_s(error.retry_after_s if isinstance(error, TransientError) else None)

    def _stream_timeout_s(self) -> int:
        """Between the setting and twice that, so that many streams do not end together."""
        return round(self._client.settings.stream_timeout_s * (1 + self._jitter()))


def _version(event: Object) -> str:
    return str(event["object"]["metadata"]["resourceVersion"])
