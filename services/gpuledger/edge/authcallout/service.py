"""Answers NATS servers that ask whether an agent may log in, by reviews of service accounts' tokens.

A request costs the API server one review. Any number of these services share the requests; none of them keeps a state.
A token must never reach a log, an error or an answer.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from gpuledger.api.kinds import TOKEN_REVIEWS
from gpuledger.edge.authcallout.decide import (
    Denied,
    Granted,
    LoginRequest,
    LoginRules,
    Reason,
    decide,
    login_request,
    response_claims,
    user_claims,
    without_token,
)
from gpuledger.edge.authcallout.jwt import JwtError, encoded, signed_by
from gpuledger.edge.authcallout.metrics import count
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.kube.transport import KubeRequest, Object
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.nkeys import KeyKind
from gpuledger.ledger.permissions import CALLOUT_SUBJECT
from gpuledger.runtime.clock import Clock
from gpuledger.runtime.tasks import end

QUEUE: Final = "gpuledger-auth-callout"
"""Servers ask one of all services that listen in this group."""

ANSWER_TIMEOUT_S: Final = 3.0
"""How long a login may take, waiting included; the server gives it up after `LOGIN_TIMEOUT_S`."""

REVIEWS_MAX: Final = 32
"""Reviews at a time."""

REQUESTS_MAX: Final = 2_000
"""Logins that wait or are reviewed; more are refused at once, and the agents come again."""

_OVERLOADED: Final = Denied(
    Reason.OVERLOADED, f"{REQUESTS_MAX} logins wait already; start more replicas of the auth callout service"
)

log = structlog.get_logger("gpuledger.authcallout")


class AuthCallout:
    """The service on one connection."""

    def __init__(
        self, connection: Connection, kube: KubeClient, rules: LoginRules, key: Ed25519PrivateKey, clock: Clock
    ) -> None:
        self._connection = connection
        self._kube = kube
        self._rules = rules
        self._key = key
        self._clock = clock
        self._reviewing = asyncio.Semaphore(REVIEWS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Answer servers for the length of the block, and then what is under way.

        Raises:
            NatsError: the connection was closed.
        """
        subscription = await self._connection.client.subscribe(CALLOUT_SUBJECT, queue=QUEUE, cb=self._on_message)
        try:
            yield
        finally:
            if not self._connection.client.is_closed:
                await subscription.unsubscribe()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=ANSWER_TIMEOUT_S)
            await end(self._tasks)

    async def _on_message(self, message: Msg) -> None:
        task = asyncio.create_task(self._answer(message, is_overloaded=len(self._tasks) >= REQUESTS_MAX))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Msg, *, is_overloaded: bool) -> None:
        request = _request_of(message.data)
        if isinstance(request, Denied):
            # Nobody can be answered who does not say for whom.
            _report(request, "")
            return
        decided = _OVERLOADED if is_overloaded else await self._decide(request)
        now_s = int(self._clock().timestamp())
        content = {"error": f"{decided.reason}: {decided.message}"} if isinstance(decided, Denied) else {}
        if isinstance(decided, Granted):
            content = {"jwt": encoded(user_claims(request, decided, now_s), self._key)}
        try:
            await message.respond(encoded(response_claims(request, content, now_s), self._key).encode())
        except NatsError as error:
            log.info("callout.unanswered", host=request.host, error=str(error))
            return
        _report(decided, request.host)

    async def _decide(self, request: LoginRequest) -> Granted | Denied:
        if (denied := without_token(request)) is not None:
            return denied
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S), self._reviewing:
                answer = await self._kube.send(self._review_of(request.token))
        except (KubeError, TimeoutError) as error:
            text = str(error) or f"the API server did not answer within {ANSWER_TIMEOUT_S:g} s"
            return Denied(Reason.REVIEW_FAILED, f"its token could not be reviewed: {text}")
        return decide(request.token, answer.get("status") or {}, self._rules, int(self._clock().timestamp()))

    def _review_of(self, token: str) -> KubeRequest:
        review: Object = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind}
        review |= {"spec": {"token": token, "audiences": [self._rules.audience]}}
        return KubeRequest("review an agent's token", "POST", TOKEN_REVIEWS.path(), {}, review)


def _request_of(data: bytes) -> LoginRequest | Denied:
    try:
        return login_request(signed_by(KeyKind.SERVER, data.decode("ascii")))
    except (JwtError, UnicodeDecodeError) as error:
        return Denied(Reason.INVALID_REQUEST, f"it is no request of a server: {error}")


def _report(decided: Granted | Denied, host: str) -> None:
    if isinstance(decided, Granted):
        count(None)
        log.info("callout.granted", node=decided.node, host=host, until=decided.expires_s)
    else:
        count(decided)
        log.warning("callout.denied", reason=str(decided.reason), host=host, message=decided.message)
