"""Rate limiter and circuit breaker for all writes to the API server.

The rate limiter is a token bucket. After a failure that is the server's own the circuit breaker opens: nothing passes
for a pause that doubles and is jittered; then one request at a time, until one succeeds. However much there is to
write, a server in trouble gets few requests.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from gpuledger.edge.kube.errors import (
    ConflictError,
    DisruptionBudgetError,
    KubeConfigError,
    KubeError,
    RefusedError,
    ResponseError,
    TransientError,
    UnauthorizedError,
    WebhookAwayError,
)
from gpuledger.runtime.backoff import Backoff, Jitter, Retries

log = structlog.get_logger("gpuledger.kube")

SERVER_TROUBLE = (TransientError, UnauthorizedError, KubeConfigError, ResponseError)
"""Errors that have nothing to do with the object of the request.

A 403 does: a right is missing for its kind, or a policy or a webhook refuses this one object, and others may be
written. So does a webhook that does not answer; its requests are retried as soon as after trouble of the server, but it
does not open the circuit breaker. Nor does a disruption budget that blocks an eviction.
"""


def is_for_all(error: KubeError) -> bool:
    """Whether all other writes would fail in the same way."""
    return isinstance(error, SERVER_TROUBLE) and not isinstance(error, (WebhookAwayError, DisruptionBudgetError))


def is_refusal(error: KubeError) -> bool:
    """Whether the server refuses this very request, and would again: it is in no trouble, and nobody was faster."""
    return isinstance(error, RefusedError) and not isinstance(error, (ConflictError, *SERVER_TROUBLE))


class RateLimiter:
    """A token bucket: tokens come at a rate, up to a number that may be taken at once."""

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


class CircuitBreaker:
    """Lets requests through as long as the server serves; while it does not, the next one waits for `retry_at_s`."""

    def __init__(self, limiter: RateLimiter, backoff: Backoff, jitter: Jitter, now: Callable[[], float]) -> None:
        self._limiter = limiter
        self._retries = Retries(backoff, jitter)
        self._now = now
        self._probe = asyncio.Lock()
        self._failed_at_s = 0.0
        self.retry_at_s = 0.0

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Wait until a request may be sent; the block sends it."""
        await asyncio.sleep(self._limiter.reserve())
        if not self._retries.failures:
            async with self._outcome():
                yield
            return
        async with self._probe:
            await asyncio.sleep(max(0.0, self.retry_at_s - self._now()))
            async with self._outcome():
                yield

    @asynccontextmanager
    async def _outcome(self) -> AsyncIterator[None]:
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
        retry_after_s = error.retry_after_s if isinstance(error, TransientError) else None
        self.retry_at_s = self._now() + self._retries.pause_s(retry_after_s)
