"""Answers NATS servers that ask whether an agent may log in, by reviews of service accounts' tokens.

A request costs the API server one review. Any number of these services share the requests; none of them keeps a state
that another one needs. A token must never reach a log, an error or an answer.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from gpuledger.edge.authcallout.decide import (
    Denied,
    Granted,
    LoginRequest,
    LoginRules,
    Reason,
    decide,
    login_request,
    other_issuer,
    response_claims,
    user_claims,
    without_token,
)
from gpuledger.edge.authcallout.keys import CalloutKeys
from gpuledger.edge.authcallout.metrics import count
from gpuledger.edge.authcallout.repeats import REPEATS, WITHIN_S, Repeats
from gpuledger.edge.authcallout.xkey import HEADER, XkeyError
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.kube.token_review import review_of
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.jwt import JwtError, encoded, signed_by
from gpuledger.ledger.nkeys import KeyKind
from gpuledger.ledger.permissions import CALLOUT_SUBJECT
from gpuledger.runtime.clock import Clock
from gpuledger.runtime.settings import CALLOUT_XKEY
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


class Question(NamedTuple):
    """What a server asks, and the key that the answer is sealed for where the server encrypts."""

    request: LoginRequest
    sealed_for: str = ""


class AuthCallout:
    """The service on one connection.

    `trouble` is why the server would not accept what we answer, as far as its last question shows.
    """

    def __init__(
        self, connection: Connection, kube: KubeClient, rules: LoginRules, keys: CalloutKeys, clock: Clock
    ) -> None:
        self.trouble = ""
        self._connection = connection
        self._kube = kube
        self._rules = rules
        self._keys = keys
        self._clock = clock
        self._repeats = Repeats()
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
        question = self._question(message)
        if isinstance(question, Denied):
            # Nobody can be answered who does not say for whom.
            _report(question, "")
            return
        request = question.request
        decided = _OVERLOADED if is_overloaded else await self._decide(request)
        now_s = int(self._clock().timestamp())
        try:
            await message.respond(self._answer_to(question, decided, now_s))
        except NatsError as error:
            log.info("callout.unanswered", host=request.host, error=str(error))
            return
        if request.is_trial and isinstance(decided, Denied) and decided.reason is Reason.NO_TOKEN:
            return
        _report(decided, request.host)
        if isinstance(decided, Granted) and self._repeats.is_odd(decided.node, now_s):
            log.warning("callout.repeated", node=decided.node, host=request.host, message=self._advice())

    def _question(self, message: Msg) -> Question | Denied:
        sender, box = (message.headers or {}).get(HEADER, ""), self._keys.box
        if not sender:
            request = _request_of(message.data)
            return request if isinstance(request, Denied) else Question(request)
        if box is None:
            self.trouble = f"the server encrypts its questions; set {CALLOUT_XKEY} to the seed of its xkey (SX...)"
            return Denied(Reason.INVALID_REQUEST, self.trouble)
        try:
            request = _request_of(box.opened(message.data, sender))
        except XkeyError as error:
            advice = f"{CALLOUT_XKEY} has {box.public}, and the server's xkey has to be the same"
            self.trouble = f"the question of the server cannot be opened: {error}; {advice}"
            return Denied(Reason.INVALID_REQUEST, self.trouble)
        return request if isinstance(request, Denied) else Question(request, sender)

    def _answer_to(self, question: Question, decided: Granted | Denied, now_s: int) -> bytes:
        request, keys = question.request, self._keys
        if isinstance(decided, Denied):
            content = {"error": f"{decided.reason}: {decided.message}"}
        else:
            content = {"jwt": encoded(user_claims(request, decided, keys.account, now_s), keys.users)}
        answer = encoded(response_claims(request, content, now_s), keys.issuer).encode()
        return keys.box.sealed(answer, question.sealed_for) if keys.box and question.sealed_for else answer

    async def _decide(self, request: LoginRequest) -> Granted | Denied:
        other = other_issuer(request, self._keys.answering)
        self.trouble = "" if other is None else other.message
        if (denied := other or without_token(request)) is not None:
            return denied
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S), self._reviewing:
                answer = await self._kube.send(
                    review_of(request.token, self._rules.audience, "review an agent's token")
                )
        except (KubeError, TimeoutError) as error:
            text = str(error) or f"the API server did not answer within {ANSWER_TIMEOUT_S:g} s"
            return Denied(Reason.REVIEW_FAILED, f"its token could not be reviewed: {text}")
        return decide(request.token, answer.get("status") or {}, self._rules, int(self._clock().timestamp()))

    def _advice(self) -> str:
        keys = self._keys
        signers = f"answers as {keys.issuer.public}"
        if keys.account is not None:
            signers += f", users of the account {keys.account} as {keys.users.public}"
        return (
            f"it was let in {REPEATS} times within {WITHIN_S} s: either its agent starts again and again, or the "
            f"server does not accept what this service signs ({signers}); the server's log says which"
        )


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
