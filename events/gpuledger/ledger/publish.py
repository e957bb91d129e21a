"""Publishing: many messages in flight, acknowledged each, recorded in the order given.

One inbox takes all acknowledgements; an answer's subject names the call and the message within it, so that a late
acknowledgement of an earlier attempt counts. After a failure sending goes back to the first message that is not
acknowledged; while a cluster has no leader, one call at a time asks with one message. It must never report a message as
recorded that the server did not acknowledge.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
from nats.aio.msg import Msg
from nats.errors import BadSubjectError, OutboundBufferLimitError
from nats.errors import Error as NatsError

from gpuledger.ledger.api import Expected, Outgoing, Receipt
from gpuledger.ledger.connect import Connection, Denial, permission_error
from gpuledger.ledger.continuity import LogGuard
from gpuledger.ledger.errors import (
    EventRefusedError,
    GenerationError,
    LedgerUnavailableError,
    PublishError,
    SequenceConflictError,
)
from gpuledger.ledger.gate import PROBE_ANSWER_MAX_S, PROBE_PAUSE_S, SILENCE_MAX_S, PublishGate
from gpuledger.ledger.refusal import PublishRefusal, refusal_of
from gpuledger.ledger.storage import NO_STORAGE_CODES
from gpuledger.runtime.backoff import Backoff, Retries
from gpuledger.runtime.telemetry import STORAGE_REFUSALS

PUBLISH_TIMEOUT_S = 30.0
"""How long one message may stay unacknowledged; well within the stream's window for repeats."""

RETRY = Backoff(first_s=0.05, max_s=1.0)
WINDOW_MESSAGES = 1024
WINDOW_BYTES = 1024 * 1024
HEADER_BYTES_MAX = 8 * 1024

MESSAGE_ID = "Nats-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"
EXPECTED_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_FILTER = "Nats-Expected-Last-Subject-Sequence-Subject"

_CONFLICT_CODE = 10071
_OTHER_STREAM_CODE = 10060
_TOO_LARGE_CODE = 10054


class Run:
    """The messages of one call: what is acknowledged, and how far sending went."""

    def __init__(
        self,
        inbox: str,
        stream: str,
        messages: Sequence[Outgoing],
        expected: Expected | None,
        *,
        is_again: bool = False,
    ) -> None:
        self.inbox = inbox
        self.messages = messages
        self.receipts: list[Receipt | None] = [None] * len(messages)
        self.first_open = 0
        self.next_to_send = 0
        self.send_until = len(messages)
        self.first_number = self.last_number = 0
        self.refusal: PublishRefusal | None = None
        self.problem = ""
        self.foreign_stream: str | None = None
        self.denial: Denial | None = None
        self.news = asyncio.Event()
        self._stream = stream
        self._headers = {} if expected is None else expectation(expected, stream)
        self._is_again = is_again
        self._bytes_before = [0, *itertools.accumulate(len(message.data) for message in messages)]

    @property
    def done(self) -> bool:
        """Whether every message is acknowledged."""
        return self.first_open == len(self.messages)

    @property
    def attempt_is_done(self) -> bool:
        """Whether every message that this attempt sends is acknowledged."""
        return self.first_open >= self.send_until

    @property
    def window_is_open(self) -> bool:
        """Whether another message may be sent now."""
        following, first = self.next_to_send, self.first_open
        if following >= self.send_until:
            return False
        in_flight_bytes = self._bytes_before[following + 1] - self._bytes_before[first]
        return following <= first or (following - first < WINDOW_MESSAGES and in_flight_bytes <= WINDOW_BYTES)

    def go_back(self, *, as_probe: bool = False) -> None:
        """Send again from the first message that is not acknowledged; as a probe that one alone."""
        self._is_again = self._is_again or self.next_to_send > 0
        self.next_to_send = self.first_open
        self.send_until = self.first_open + 1 if as_probe else len(self.messages)
        self.first_number = self.last_number = 0
        self.refusal = None
        self.problem = ""

    def headers_of(self, message: Outgoing) -> dict[str, str]:
        """The message's headers. What this stream may have taken already, no other one takes."""
        again = {EXPECTED_STREAM: self._stream} if self._is_again else {}
        return {MESSAGE_ID: message.id, **again, **self._headers}

    def number(self, number: int) -> None:
        """A message was sent under this number, of those that count all messages of everybody."""
        self.first_number = self.first_number or number
        self.last_number = number

    def break_off(self) -> None:
        """The connection broke: stop waiting."""
        self.lapse("the connection broke")

    def lapse(self, problem: str) -> None:
        """What was sent is lost: stop waiting."""
        self.problem = problem
        self.last_number = 0
        self.news.set()

    def deny(self, denial: Denial) -> None:
        """The server refuses us permission, so nothing will acknowledge a message that was sent."""
        sent = self.messages[self.first_open : self.next_to_send]
        if denial.kind == "publish" and any(denial.subject == message.subject.lower() for message in sent):
            self.denial = denial
            self.news.set()

    def answer(self, index: int, answer: Msg, refusal: PublishRefusal | None) -> None:
        """Take the server's answer to a message."""
        if refusal is not None:
            STORAGE_REFUSALS.inc(refusal.code in NO_STORAGE_CODES)
            self.refusal = refusal if index >= self.first_open else self.refusal
            self.news.set()
        elif self.receipts[index] is None:
            self._acknowledge(index, orjson.loads(answer.data))

    def _acknowledge(self, index: int, document: dict[str, Any]) -> None:
        if document["stream"] != self._stream:
            self.foreign_stream = document["stream"]
            self.news.set()
            return
        self.receipts[index] = Receipt(document["seq"], document.get("duplicate", False))
        receipts = self.receipts
        while self.first_open < len(receipts) and receipts[self.first_open] is not None:
            self.first_open += 1
        if self.attempt_is_done or self.next_to_send - self.first_open <= WINDOW_MESSAGES // 2:
            self.news.set()


class Publisher:
    """Publishes to one stream; `timeout_s` bounds how long one message may stay unacknowledged.

    With a `guard` nothing is sent into another log than the one that was opened.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        *,
        guard: LogGuard | None = None,
        timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> None:
        self._connection = connection
        self._guard = guard
        self._stream = stream
        self._timeout_s = timeout_s
        silence_s = min(SILENCE_MAX_S, timeout_s)
        self.gate = PublishGate(silence_s) if guard is None else PublishGate(silence_s, guard.doubt)
        self._inbox = connection.client.new_inbox()
        self._numbers = itertools.count()
        self._runs: dict[str, Run] = {}

    async def start(self) -> None:
        """Listen for acknowledgements, until the connection closes."""
        await self._connection.client.subscribe(
            f"{self._inbox}.*.*", cb=self._on_answer, pending_msgs_limit=0, pending_bytes_limit=0
        )

    async def publish(
        self, messages: Sequence[Outgoing], expected: Expected | None = None, *, is_again: bool = False
    ) -> list[Receipt]:
        """Record messages in their order; `is_again` says that this stream may have taken them already.

        Raises:
            SequenceConflictError: `expected` does not hold.
            PublishError: a message stayed unacknowledged, or was refused for good.
            GenerationError: the log goes on in another stream.
            PermissionDeniedError: we may not publish under a subject; what is before its message is recorded.
            LogChangedError: the server came back with another log.
        """
        for message in messages:
            self.check_size(message)
        number = str(next(self._numbers))
        run = self._runs[number] = Run(f"{self._inbox}.{number}", self._stream, messages, expected, is_again=is_again)
        try:
            with (
                self._connection.on_break(run.break_off),
                self._connection.on_denial(run.deny),
                self.gate.watching(run),
            ):
                await self._complete(run)
        finally:
            del self._runs[number]
        return [receipt for receipt in run.receipts if receipt is not None]

    @property
    def message_bytes_max(self) -> int:
        """As the function of this name."""
        return message_bytes_max(self._connection)

    def check_size(self, message: Outgoing) -> None:
        """Refuse what the server could not take.

        Raises:
            EventRefusedError: the message is too large.
        """
        # A message beyond the server's bound would cost the connection, not only the message.
        limit = self.message_bytes_max
        if len(message.data) > limit:
            raise EventRefusedError(
                f"The event {message.id} has {len(message.data)} bytes; this server takes {limit}. "
                "Make it smaller, or raise max_payload."
            )

    async def _complete(self, run: Run) -> None:
        clock = asyncio.get_running_loop().time
        deadline, retries = clock() + self._timeout_s, Retries(RETRY)
        while not run.done:
            before = run.first_open
            problem = await self._attempt(run, deadline - clock())
            if run.denial is not None:
                raise permission_error(self._connection.address, run.denial)
            _raise_for_good(run)
            if run.first_open > before:
                deadline = clock() + self._timeout_s
                retries.reset()
            pause_s = retries.pause_s() if problem else 0.0
            if problem and run.first_open == before and clock() + pause_s >= deadline:
                raise PublishError(
                    f"The event {run.messages[run.first_open].id} was not acknowledged within "
                    f"{self._timeout_s:g} s: {problem}. Publishing it again is safe."
                )
            if not run.done:
                await asyncio.sleep(pause_s)

    async def _attempt(self, run: Run, timeout_s: float) -> str:
        """Send from the first open message on until all are acknowledged; returns the problem where something fails."""
        try:
            await self._wait_up(timeout_s)
            if self.gate.is_open:
                return await self._send(run)
            return await self._probe(run, max(timeout_s, 0))
        except LedgerUnavailableError as error:
            if self._connection.client.is_closed:
                raise
            return str(error).removesuffix(".")
        except TimeoutError:
            return "no acknowledgement" if self.gate.is_open else self.gate.problem
        except OutboundBufferLimitError:
            return "the connection broke"
        except BadSubjectError as error:
            raise EventRefusedError("The event cannot be published: its subject is not one.") from error
        except NatsError as error:
            raise PublishError(f"The event cannot be published: {_text(error)}.") from error

    async def _send(self, run: Run, *, as_probe: bool = False) -> str:
        run.go_back(as_probe=as_probe)
        while not run.attempt_is_done:
            run.news.clear()
            await self._fill_window(run)
            await run.news.wait()
            if run.problem or run.denial is not None:
                return run.problem or "the connection broke"
            if run.refusal is not None:
                return run.refusal.reason
            if run.foreign_stream is not None:
                return f"the log goes on in {run.foreign_stream}"
        return ""

    async def _probe(self, run: Run, timeout_s: float) -> str:
        """Once it is our turn, ask with one message whether the server acknowledges again; no problem if it does."""
        try:
            async with asyncio.timeout(timeout_s) as waiting, self.gate.turn() as is_our_turn:
                if not is_our_turn or run.done:
                    return ""
                await self._wait_up(timeout_s)  # while it waited, a server with another log may have come back
                waiting.reschedule(asyncio.get_running_loop().time() + PROBE_ANSWER_MAX_S)
                problem = await self._send(run, as_probe=True)
                if not self.gate.is_open:
                    await asyncio.sleep(PROBE_PAUSE_S)
                return problem
        except TimeoutError:
            return self.gate.problem

    async def _wait_up(self, timeout_s: float) -> None:
        """Return with a connection over which the log was confirmed; what is sent over none is kept for the next."""
        while True:
            await self._connection.wait_up(max(timeout_s, 0))
            if self._guard is not None:
                async with asyncio.timeout(max(timeout_s, 0)):
                    await self._guard.confirm_before_publishing()
            if self._connection.is_up:
                return

    async def _fill_window(self, run: Run) -> None:
        publish: Callable[..., Awaitable[None]] = self._connection.client.publish
        while run.window_is_open and not run.problem:
            if self._guard is not None and not self._guard.is_confirmed:
                run.lapse("the log has to be confirmed again")
                return
            index = run.next_to_send
            run.next_to_send = index + 1
            if run.receipts[index] is None:
                message = run.messages[index]
                run.number(self.gate.send())
                await publish(message.subject, message.data, f"{run.inbox}.{index}", run.headers_of(message))

    async def _on_answer(self, answer: Msg) -> None:
        _, number, index = answer.subject.rsplit(".", 2)
        run, refusal = self._runs.get(number), refusal_of(answer)
        if refusal is None or not (refusal.is_leaderless or refusal.is_in_process):
            self.gate.open(run.first_number if run else 0)
        elif refusal.is_leaderless:
            self.gate.close(refusal.reason)
        if run is not None:
            run.answer(int(index), answer, refusal)


def message_bytes_max(connection: Connection) -> int:
    """How large the data of a message may be; headers come on top."""
    return connection.client.max_payload - HEADER_BYTES_MAX


def expectation(expected: Expected, stream: str) -> dict[str, str]:
    """The headers by which the server records a message under this precondition alone; its sequences are a stream's."""
    return {
        EXPECTED_STREAM: stream,
        EXPECTED_SEQUENCE: str(expected.sequence),
        EXPECTED_FILTER: expected.subject_filter,
    }


def _raise_for_good(run: Run) -> None:
    refusal = run.refusal
    if run.foreign_stream is not None or (refusal is not None and refusal.code == _OTHER_STREAM_CODE):
        where = f"the stream {run.foreign_stream}" if run.foreign_stream else "another stream"
        recorded = tuple(one for one in run.receipts[: run.first_open] if one is not None)
        raise GenerationError(f"The ledger goes on in {where}. Start again to write there.", recorded)
    if refusal is None or refusal.is_transient:
        return
    message = run.messages[run.first_open]
    if refusal.code == _CONFLICT_CODE:
        raise SequenceConflictError(f"The event {message.id} came too late: {refusal.reason}. Read and decide again.")
    refused = EventRefusedError if refusal.code == _TOO_LARGE_CODE else PublishError
    raise refused(f"The event {message.id} was refused: {refusal.reason}.")


def _text(error: NatsError) -> str:
    return str(error) or type(error).__name__
