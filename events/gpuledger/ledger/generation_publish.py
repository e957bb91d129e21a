"""Publishes into one generation of a log, as whoever spans generations sees it: receipts are places in the log."""

from collections.abc import Sequence
from typing import Protocol

from gpuledger.ledger.api import Expected, Outgoing, Receipt
from gpuledger.ledger.atomic import AtomicPublisher
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import LogGuard
from gpuledger.ledger.intake import stream_intake
from gpuledger.ledger.stream import Generation


class GenerationPublisher(Protocol):
    """Publishes into one generation; preconditions name places in it."""

    @property
    def message_bytes_max(self) -> int:
        """See `gpuledger.ledger.api.Ledger.message_bytes_max`."""
        ...

    async def start(self) -> None:
        """Listen for acknowledgements, until the connection closes."""
        ...

    def check_size(self, message: Outgoing) -> None:
        """Refuse what the server could not take.

        Raises:
            EventRefusedError: the message is too large.
        """
        ...

    async def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Record messages in their order; raises as `AtomicPublisher.publish`."""
        ...

    async def publish_expected(self, message: Outgoing, expected: Expected) -> Receipt:
        """Record one message under a precondition; raises as `Publisher.publish`."""
        ...

    async def commit(self, messages: Sequence[Outgoing], expected: Expected) -> list[Receipt]:
        """Try one batch under a precondition; no receipts unless the server acknowledges it."""
        ...


class StreamPublisher(GenerationPublisher):
    """Publishes into a generation of one partition."""

    def __init__(
        self, connection: Connection, generation: Generation, *, guard: LogGuard | None, timeout_s: float
    ) -> None:
        self._publisher = AtomicPublisher(connection, generation.stream, guard=guard, timeout_s=timeout_s)
        self._intake = stream_intake(generation.number, generation.intake)

    @property
    def message_bytes_max(self) -> int:
        """See `GenerationPublisher.message_bytes_max`."""
        return self._publisher.one_by_one.message_bytes_max

    async def start(self) -> None:
        """See `GenerationPublisher.start`."""
        await self._publisher.start()

    def check_size(self, message: Outgoing) -> None:
        """See `GenerationPublisher.check_size`."""
        self._publisher.one_by_one.check_size(message)

    async def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """See `GenerationPublisher.publish`."""
        return await self._publisher.publish([self._intake.sent(one) for one in messages])

    async def publish_expected(self, message: Outgoing, expected: Expected) -> Receipt:
        """See `GenerationPublisher.publish_expected`."""
        return (await self._publisher.one_by_one.publish([self._intake.sent(message)], expected))[0]

    async def commit(self, messages: Sequence[Outgoing], expected: Expected) -> list[Receipt]:
        """See `GenerationPublisher.commit`."""
        return await self._publisher.commit([self._intake.sent(one) for one in messages], expected)
