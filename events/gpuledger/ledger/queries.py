"""Requests to a ledger that need no consumer: its current generation, and the newest message of a subject.

Both are plain requests, so that permissions can name each. The server reports a missing permission beside the answer,
which then never comes: whoever waits for an answer has to listen for that as well.
"""

import asyncio
import re
from collections.abc import Collection, Coroutine, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from gpuledger.ledger.api import Message
from gpuledger.ledger.connect import REQUEST_ATTEMPT_S, Connection, Denial, permission_error
from gpuledger.ledger.errors import LedgerUnavailableError, PermissionDeniedError
from gpuledger.ledger.partitions import ANY_PART, counted_partitions, partition_of, partition_stream
from gpuledger.ledger.permissions import STREAM_NAMES, direct_get
from gpuledger.ledger.stream import stream_name
from gpuledger.runtime.tasks import abandon

QUERY_TIMEOUT_S: Final = 5.0

_NOT_ENABLED: Final = 10039
"""The account has no JetStream of its own, such as the agents' account beside the ledger's."""

AGENT_ADVICE: Final = (
    "Give this node's user the permissions that `gpuledger agent permissions NODE` prints; docs/agent-credentials.md "
    "says how."
)

_NOT_FOUND: Final = "404"

_LEDGER_STREAM: Final = re.compile(r"LEDGER_([1-9][0-9]*)(?:_P[0-9]+OF[0-9]+)?$")

T = TypeVar("T")


class FoundLedger(NamedTuple):
    """The current generation of a ledger, and how many partitions it has."""

    generation: int
    partitions: int = 1

    @property
    def stream(self) -> str:
        """The stream of the generation."""
        return stream_name(self.generation)

    def stream_of(self, subject: str) -> str:
        """The stream that stores events under a subject."""
        if self.partitions == 1:
            return self.stream
        return partition_stream(self.stream, self.partition_of(subject), self.partitions)

    def partition_of(self, subject: str) -> int:
        """The partition of events under a subject."""
        return partition_of(subject, self.partitions)


class StreamQueries:
    """Sends requests; each may take `timeout_s`."""

    def __init__(self, connection: Connection, *, timeout_s: float = QUERY_TIMEOUT_S) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._apis: tuple[str, ...] = STREAM_NAMES
        self._prefixes: tuple[str, ...] = ("", ANY_PART)

    async def ledger(self, subject: str) -> FoundLedger | None:
        """The ledger that now takes events under a subject; None where there is none.

        Raises:
            LedgerUnavailableError: nobody answers.
            PermissionDeniedError: the server refuses permission.
        """
        for prefix in self._prefixes:
            found = _found(await self._stream_names(f"{prefix}{subject}"))
            if found is not None:
                self._prefixes = tuple(sorted(self._prefixes, key=lambda one: one != prefix))
                return found
        return None

    async def _stream_names(self, subject: str) -> list[str]:
        request = orjson.dumps({"subject": subject})
        for api in self._apis:
            document = orjson.loads((await self._request(api, request)).data)
            error = document.get("error")
            if error is None:
                self._apis = (api,)
                return list(document.get("streams") or ())
            if error.get("err_code") != _NOT_ENABLED:
                break
        self._apis = STREAM_NAMES
        raise LedgerUnavailableError(f"JetStream at {self._connection.address} says {error.get('description')!r}.")

    async def newest(self, stream: str, subject: str) -> Message | None:
        """The last message of a subject; None where there is none.

        Raises:
            LedgerUnavailableError: nobody answers.
            PermissionDeniedError: the server refuses permission.
        """
        try:
            answer = await self._request(direct_get(stream, subject))
        except LedgerUnavailableError as error:
            if isinstance(error.__cause__, NoRespondersError):
                raise LedgerUnavailableError(
                    f"{stream} does not serve messages directly. Allow it: `nats stream edit {stream} --allow-direct`."
                ) from error
            raise
        return _message(answer)

    async def _request(self, subject: str, body: bytes = b"") -> Msg:
        client = self._connection.client
        work = self._connection.request(
            lambda: client.request(subject, body, timeout=REQUEST_ATTEMPT_S), self._timeout_s
        )
        return await unless_denied(self._connection, work, {subject})


async def unless_denied(
    connection: Connection, work: Coroutine[Any, Any, T], subjects: Collection[str], advice: str = AGENT_ADVICE
) -> T:
    """The result of work that publishes to these subjects and waits for answers.

    Raises:
        PermissionDeniedError: the server refuses permission.
    """
    denial: asyncio.Future[Denial] = asyncio.get_running_loop().create_future()
    ours = {subject.lower() for subject in subjects}

    def on_denial(denied: Denial) -> None:
        if not denial.done() and (denied.subject in ours or is_of_answers(connection, denied)):
            denial.set_result(denied)

    with connection.on_denial(on_denial):
        task = asyncio.create_task(work)
        try:
            await asyncio.wait((task, denial), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                await abandon(task)
    if denial.done() and (task.cancelled() or task.exception() is not None):
        raise permission_error(connection.address, denial.result(), advice)
    return task.result()


def is_of_answers(connection: Connection, denial: Denial) -> bool:
    """Whether the server keeps us from receiving answers."""
    return denial.kind == "subscription" and denial.subject.startswith(f"{connection.inbox_prefix.lower()}.")


def denied_error(connection: Connection, denial: Denial) -> PermissionDeniedError:
    """The error for a denial; its message says what to do about it."""
    return permission_error(connection.address, denial, AGENT_ADVICE)


def _message(answer: Msg) -> Message | None:
    headers = answer.headers or {}
    status = headers.get("Status")
    if status == _NOT_FOUND:
        return None
    if status is not None:
        raise LedgerUnavailableError(f"The newest message cannot be read: {headers.get('Description', status)}.")
    return Message(
        headers["Nats-Subject"], answer.data, int(headers["Nats-Sequence"]), _nanoseconds(headers["Nats-Time-Stamp"])
    )


def _nanoseconds(text: str) -> int:
    """Nanoseconds since 1970 of an RFC 3339 time in UTC, whose fraction has as many digits as it needs."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return int(datetime.fromisoformat(f"{whole}+00:00").timestamp()) * 10**9 + int(fraction.ljust(9, "0") or 0)


def _found(streams: Sequence[str]) -> FoundLedger | None:
    """The ledger of which these are streams; of its newest generation."""
    numbers = {int(match[1]) for one in streams if (match := _LEDGER_STREAM.match(one))}
    if not numbers:
        return None
    newest = max(numbers)
    return FoundLedger(newest, max(counted_partitions(stream_name(newest), one) for one in streams) or 1)
