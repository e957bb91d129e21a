"""The ledger for a node's agent, which may publish and read the newest event of a subject.

It needs no more than `gpuledger.ledger.permissions` allows: one TCP connection, whose answers come on subjects of the
node's own. It must never create or alter a stream, have a consumer, or wait long where permission is missing.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import groupby
from typing import Any, Final

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from gpuledger.events.position import number_of
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import rule_version
from gpuledger.events.subjects import shared_subject
from gpuledger.ledger.api import Expected, Message, Outgoing, Receipt
from gpuledger.ledger.atomic import AtomicPublisher
from gpuledger.ledger.connect import CONNECT_TIMEOUT_S, Connection, Denial, connected
from gpuledger.ledger.errors import GenerationError, LedgerUnavailableError, PermissionDeniedError
from gpuledger.ledger.partitions import in_partition, is_in_log, order_subject
from gpuledger.ledger.permissions import SHARED_SUBJECTS_SUBJECT, desired_devices_subject, inbox_prefix, written_filter
from gpuledger.ledger.publish import PUBLISH_TIMEOUT_S
from gpuledger.ledger.queries import (
    QUERY_TIMEOUT_S,
    FoundLedger,
    StreamQueries,
    denied_error,
    is_of_answers,
    unless_denied,
)
from gpuledger.runtime.settings import ANONYMOUS, NatsIdentity

STREAM_TIMEOUT_S: Final = 5.0
"""How long a connection waits for a ledger that the services have not created yet."""

STREAM_DELAY_S: Final = 0.2

RULE_QUERIES_FAILED_MAX: Final = 3
"""How often a connection asks in vain whether names share a subject; then it goes on naming them."""

SETTLE_TIMEOUT_S: Final = 10
"""How long the server may take to confirm a subscription; the library takes whole seconds."""

IN_LOG_LOOKS_MAX: Final = 100
IN_LOG_PAUSE_S: Final = 0.02
"""How often, and with which pauses, it is looked whether an event is in the log of several partitions."""

_NO_LEDGER: Final = "There is no ledger on this server yet. Start the services: an agent does not create one."


class EdgeLedger:
    """The current generation on a NATS server; `connect_edge` makes it. See `Publishing` and `Asking` of the API.

    It serves one generation: once the log goes on in another, everything raises LedgerUnavailableError, and whoever
    connects again finds the other.
    """

    def __init__(
        self, connection: Connection, queries: StreamQueries, found: FoundLedger, *, publish_timeout_s: float
    ) -> None:
        self._connection = connection
        self._queries = queries
        self._found = found
        self._publish_timeout_s = publish_timeout_s
        self._publishers: dict[str, AtomicPublisher] = {}
        self._over: LedgerUnavailableError | None = None
        self._shared_version = 0
        self._rule_queries_failed = 0

    @property
    def generation(self) -> int:
        """The generation that is written to."""
        return self._found.generation

    @property
    def is_usable(self) -> bool:
        """Whether this connection may serve again; where not, another one is needed."""
        return self._over is None and not self._connection.client.is_closed

    async def start(self, subject: str) -> None:
        """Listen for acknowledgements of what is published under such subjects, until the connection closes.

        Raises:
            PermissionDeniedError: the server refuses the subscription.
        """
        await self._publisher(self._found.stream_of(subject))
        await self._settle()
        self._refuse_over()

    async def publish(self, message: Outgoing, expected: Expected | None = None) -> Receipt:
        """See `gpuledger.ledger.api.Ledger.publish`; PermissionDeniedError, at once, without permission."""
        (message,) = await self._in_form([message])
        publisher = await self._publisher(self._found.stream_of(message.subject))
        sent = self._sent([message])
        return (await self._publish(publisher.one_by_one.publish(sent, expected), sent))[0]

    async def publish_many(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """See `gpuledger.ledger.api.Ledger.publish_many`; PermissionDeniedError, at once, without permission.

        Names share a subject where the ledger lets them: messages come under the subjects that name them. With several
        partitions receipts have the numbers of events in theirs.
        """
        receipts: list[Receipt] = []
        for stream, run in groupby(await self._in_form(messages), lambda one: self._found.stream_of(one.subject)):
            sent = self._sent(run)
            receipts += await self._publish((await self._publisher(stream)).publish(sent), sent)
        return receipts

    async def newest(self, subject: str) -> Message | None:
        """See `gpuledger.ledger.api.LedgerQueries.newest`."""
        self._refuse_over()
        # An archived stream still answers, so every call checks for the current one.
        current = await self._queries.ledger(subject)
        if current != self._found:
            self._end(f"The ledger goes on in {current.stream}." if current else _NO_LEDGER)
        return await self._newest(subject)

    @asynccontextmanager
    async def notified(self, subject: str, notify: Callable[[], None]) -> AsyncIterator[None]:
        """See `gpuledger.ledger.api.LedgerQueries.notified`."""
        self._refuse_over()

        async def on_message(_message: Msg) -> None:
            notify()

        partition = self._found.partition_of(subject)
        subject = in_partition(subject, partition, self._found.partitions)
        denials: list[Denial] = []
        with self._connection.on_break(notify), self._connection.on_denial(denials.append):
            subscription = await self._listen(subject, on_message)
            try:
                await self._settle()
                self._refuse_denied(subject, denials)
                yield
            finally:
                with suppress(NatsError):
                    await subscription.unsubscribe()

    def on_denial(self, denial: Denial) -> None:
        """End this connection where the server refuses us the answers."""
        if is_of_answers(self._connection, denial):
            self._over = denied_error(self._connection, denial)

    async def _in_form(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        newest = RULE_VERSIONS[Rule.SHARED_SUBJECTS]
        if self._shared_version < newest and any(
            one.subject != shared_subject(one.subject, newest) for one in messages
        ):
            await self._learn_form()
        return [one._replace(subject=shared_subject(one.subject, self._shared_version)) for one in messages]

    async def _learn_form(self) -> None:
        """Ask for the rule; permissions of before there was one refuse that, and its events stay named then."""
        if self._over is not None or self._rule_queries_failed >= RULE_QUERIES_FAILED_MAX:
            return
        try:
            message = await self._newest(SHARED_SUBJECTS_SUBJECT)
        except PermissionDeniedError:
            self._rule_queries_failed = RULE_QUERIES_FAILED_MAX
        except LedgerUnavailableError:
            self._rule_queries_failed += 1
        else:
            self._shared_version = 0 if message is None else rule_version(message.data)

    async def _newest(self, subject: str) -> Message | None:
        """The newest event, once it is in the log: what follows from it has to stand behind it.

        Raises:
            LedgerUnavailableError: nobody puts it into the log.
        """
        message = await self._queries.newest(self._found.stream_of(subject), subject)
        if message is None or self._found.partitions == 1:
            return message
        partition = self._found.partition_of(subject)
        for _ in range(IN_LOG_LOOKS_MAX):
            order = await self._queries.newest(self._found.stream, order_subject(self.generation))
            if order is not None and is_in_log(
                order.data, partition, self._found.partitions, number_of(message.sequence)
            ):
                return message
            await asyncio.sleep(IN_LOG_PAUSE_S)
        raise LedgerUnavailableError("An event waits to be put into the log. Start the services, which do that.")

    def _sent(self, messages: Iterable[Outgoing]) -> list[Outgoing]:
        """The messages under the subjects by which to publish them."""
        count, of = self._found.partitions, self._found.partition_of
        return [one._replace(subject=in_partition(one.subject, of(one.subject), count)) for one in messages]

    async def _publisher(self, stream: str) -> AtomicPublisher:
        """What publishes into a stream, such as the one of the node's partition."""
        if stream not in self._publishers:
            publisher = AtomicPublisher(self._connection, stream, timeout_s=self._publish_timeout_s)
            await publisher.start()
            self._publishers[stream] = publisher
        return self._publishers[stream]

    async def _publish(
        self, publishing: Coroutine[Any, Any, list[Receipt]], messages: Sequence[Outgoing]
    ) -> list[Receipt]:
        try:
            self._refuse_over()
            subjects = {message.subject for message in messages}
            return await unless_denied(self._connection, publishing, subjects)
        except GenerationError as error:
            self._over = LedgerUnavailableError(str(error))
            raise LedgerUnavailableError(str(error)) from error
        finally:
            publishing.close()

    async def _listen(self, subject: str, callback: Callable[[Msg], Awaitable[None]]) -> Subscription:
        try:
            return await self._connection.client.subscribe(subject, cb=callback)
        except NatsError as error:
            raise self._broken(error) from error

    async def _settle(self) -> None:
        """Return when the server has confirmed or refused the subscriptions."""
        try:
            # The library's ping may overtake what was sent before it, a second one may not.
            await self._connection.client.flush(SETTLE_TIMEOUT_S)
            await self._connection.client.flush(SETTLE_TIMEOUT_S)
        except NatsError as error:
            raise self._broken(error) from error

    def _broken(self, error: NatsError) -> LedgerUnavailableError:
        return LedgerUnavailableError(f"The connection to NATS at {self._connection.address} broke ({error}).")

    def _refuse_denied(self, subject: str, denials: Sequence[Denial]) -> None:
        for denial in denials:
            if denial.subject == subject.lower():
                raise denied_error(self._connection, denial)

    def _end(self, reason: str) -> None:
        self._over = LedgerUnavailableError(reason)
        self._refuse_over()

    def _refuse_over(self) -> None:
        if self._over is not None:
            raise type(self._over)(*self._over.args)


@asynccontextmanager
async def connect_edge(
    url: str,
    *,
    name: str,
    node: str,
    identity: NatsIdentity = ANONYMOUS,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    publish_timeout_s: float = PUBLISH_TIMEOUT_S,
    stream_timeout_s: float = STREAM_TIMEOUT_S,
    query_timeout_s: float = QUERY_TIMEOUT_S,
) -> AsyncIterator[EdgeLedger]:
    """The current generation of the ledger at `url`, for the agent of a node; nothing is created.

    Raises:
        LedgerUnavailableError: the server cannot be reached, refuses us, or has no ledger.
    """
    prefix = inbox_prefix(node)
    async with connected(
        url, name=name, timeout_s=connect_timeout_s, identity=identity, inbox_prefix=prefix
    ) as connection:
        queries = StreamQueries(connection, timeout_s=query_timeout_s)
        found = await _current_ledger(queries, desired_devices_subject(node), stream_timeout_s)
        ledger = EdgeLedger(connection, queries, found, publish_timeout_s=publish_timeout_s)
        with connection.on_denial(ledger.on_denial):
            await ledger.start(written_filter(node))
            yield ledger


async def _current_ledger(queries: StreamQueries, subject: str, timeout_s: float) -> FoundLedger:
    try:
        async with asyncio.timeout(timeout_s):
            while not (found := await queries.ledger(subject)):  # noqa: ASYNC110 - nothing reports when
                await asyncio.sleep(STREAM_DELAY_S)
    except TimeoutError as error:
        raise LedgerUnavailableError(_NO_LEDGER) from error
    return found
