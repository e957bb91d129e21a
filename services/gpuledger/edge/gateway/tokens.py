"""Asks the API server whose tokens are, and keeps its answers for a while. A token must never reach a log or an error.

Where the API server cannot be asked, nobody is let in.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from gpuledger.edge.gateway.bounds import REFUSAL_LIFE_S, REVIEW_LIFE_S, GatewayBounds
from gpuledger.edge.gateway.metrics import REVIEWS
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.kube.token_review import InvalidToken, TokenIdentity, identity_of, review_of
from gpuledger.healthreports.errors import NotDurableError

Found = TokenIdentity | InvalidToken


class _Answer(NamedTuple):
    found: Found
    until_s: float


class TokenReviews:
    """The answers about tokens, by the digest of each."""

    def __init__(self, kube: KubeClient, audience: str, bounds: GatewayBounds, monotonic: Callable[[], float]) -> None:
        self._kube = kube
        self._audience = audience
        self._bounds = bounds
        self._monotonic = monotonic
        self._answers: OrderedDict[bytes, _Answer] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Task[Found]] = {}
        self._slots = asyncio.Semaphore(bounds.reviews_at_once_max)

    async def identity(self, token: str) -> Found:
        """Whose a token is.

        Raises:
            NotDurableError: the API server cannot be asked.
        """
        key = sha256(token.encode()).digest()
        answer = self._answers.get(key)
        if answer is not None and answer.until_s > self._monotonic():
            REVIEWS.labels("cached").inc()
            return answer.found
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._review(key, token))
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(task)

    async def _review(self, key: bytes, token: str) -> Found:
        try:
            async with asyncio.timeout(self._bounds.review_timeout_s), self._slots:
                answer = await self._kube.send(review_of(token, self._audience, "review a monitor's token"))
        except (KubeError, TimeoutError) as error:
            REVIEWS.labels("failed").inc()
            why = str(error) or f"it did not answer within {self._bounds.review_timeout_s:g} s"
            raise NotDurableError(
                f"The API server cannot be asked who reports: {why.replace(token, '...')} Send the report again later."
            ) from error
        found = identity_of(token, answer.get("status") or {}, self._audience)
        is_refused = isinstance(found, InvalidToken)
        REVIEWS.labels("refused" if is_refused else "accepted").inc()
        self._keep(key, _Answer(found, self._monotonic() + (REFUSAL_LIFE_S if is_refused else REVIEW_LIFE_S)))
        return found

    def _keep(self, key: bytes, answer: _Answer) -> None:
        self._answers.pop(key, None)
        self._answers[key] = answer
        if len(self._answers) > self._bounds.reviews_max:
            self._answers.popitem(last=False)
