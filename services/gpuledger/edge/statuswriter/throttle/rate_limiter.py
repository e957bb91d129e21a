"""Lets requests through to the API server: so many a second, and hardly any while it does not serve.

After a failure that is the server's own, nothing passes for a pause that doubles and is jittered; then one request at
a time, until one succeeds. However much there is to write, a server in trouble is asked little.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from gpuledger.edge.kube.errors import (
    KubeConfigError,
    KubeError,
    ResponseError,
    TransientError,
    UnauthorizedError,
    WebhookAwayError,
)
from gpuledger.runtime.backoff import Backoff, Jitter, Retries

log = structlog.get_logger("gpuledger.statuswriter")

SERVER_TROUBLE = (TransientError, UnauthorizedError, KubeConfigError, ResponseError)
"""What has nothing to do with the object that was asked for.

A 403 has: a right is missing for its kind, or a policy or a webhook refuses this one object, and others may be written.
So has a webhook that does not answer; it is tried again as soon as after trouble, and closes the gate to nobody.
"""


def is_for_all(error: KubeError) -> bool:
    """Whether all other writes would meet the same trouble."""
    return isinstance(error, SERVER_TROUBLE) and not isinstance(error, WebhookAwayError)


class Bucket:
    """Tokens that come at a rate, up to a number that may be taken at once."""

    def __init__(self, per_s: float, burst: int, now: Callable[[], float]) -> None:
        self._interval_s = 1.0 / per_s
        self._span_s = burst * self._interval_s
        self._now = now
        self._spent_until_s = now() - self._span_s

    def reserve(self) -> float:
        """Take a token; returns the seconds to wait until it is there."""
        now_s = self._now()
        self._spent_until_s = max(self._spent_until_s, now_s - self._span_s) + self._interval_s
        return max(0.0, self._spent_until_s - now_s)


class Gate:
    """Where every write has to pass."""

    def __init__(self, bucket: Bucket, backoff: Backoff, jitter: Jitter, now: Callable[[], float]) -> None:
        self._bucket = bucket
        self._retries = Retries(backoff, jitter)
        self._now = now
        self._one = asyncio.Lock()
        self._failed_at_s = 0.0
        self.open_at_s = 0.0

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Wait for one's turn, and note how the request in the block goes."""
        await asyncio.sleep(self._bucket.reserve())
        if not self._retries.failures:
            async with self._noting():
                yield
            return
        async with self._one:
            await asyncio.sleep(max(0.0, self.open_at_s - self._now()))
            async with self._noting():
                yield

    @asynccontextmanager
    async def _noting(self) -> AsyncIterator[None]:
        begun_s = self._now()
        try:
            yield
        except KubeError as error:
            if is_for_all(error):
                self._failed(error, begun_s)
            raise
        if self._retries.failures:
            log.info("kube.answers", failures=self._retries.failures)
        self._retries.reset()

    def _failed(self, error: KubeError, begun_s: float) -> None:
        """Requests that were under way together fail together, and count once."""
        if self._retries.failures and begun_s < self._failed_at_s:
            return
        self._failed_at_s = self._now()
        if not self._retries.failures:
            log.warning("kube.trouble", reason=str(error))
        requested_s = error.retry_after_s if isinstance(error, TransientError) else None
        self.open_at_s = self._now() + self._retries.pause_s(requested_s)
