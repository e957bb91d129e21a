"""What runners are tried with: events, some unfit, a ledger that fails on demand, and a clock that is set."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded, decode, encode
from gpuledger.events.position import Offset, number_of
from gpuledger.ledger.api import Expected, Ledger, Outgoing, Receipt
from gpuledger.ledger.errors import PublishError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.clock import system_clock
from support.events import AGENT, event, outgoing
from support.ledger_double import LedgerDouble
from support.ledgers import everything


def failures(numbers: range, source: str = AGENT) -> list[Decoded]:
    """Failures of a source's devices, by their numbers."""
    return [event(DeviceFailed(kind="DBE"), f"d{number % 7}", number=number, source=source) for number in numbers]


def unfit(number: int, source: str) -> Outgoing:
    """An event whose data does not fit its type."""
    good = event(DeviceFailed(kind="?"), "d1", number=number, source=source)
    return outgoing(good)._replace(data=encode(good).replace(b'"?"', b'""'))


class Moving:
    """A clock that goes where it is told."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return system_clock() + self.ahead


class Failing(LedgerDouble):
    """The ledger, until a test has publishing fail: before anything was recorded, or behind it."""

    def __init__(self, ledger: JetStreamLedger) -> None:
        super().__init__(ledger)
        self.fails: str | None = None
        self.fails_after: int | None = None
        self.tried: list[list[str]] = []
        self.comes_first: list[Decoded] = []
        self.longer_by = 0

    async def head(self) -> Offset:
        """As of a longer log, until a test takes that back."""
        return number_of(await super().head()) + self.longer_by

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        self.tried.append([message.id for message in messages])
        if self.fails == "before":
            raise PublishError("The server is gone.")
        first, self.comes_first = self.comes_first, []
        await super().publish_many([outgoing(event) for event in first])
        receipts = await super().publish_many(messages, expected)
        if self.fails == "behind" or len(self.tried) == self.fails_after:
            raise PublishError("The server is gone.")
        return receipts


async def decided(ledger: Ledger) -> list[Decoded]:
    """What our own deciders recorded."""
    messages = await everything(ledger)
    return [decode(one.data) for one in messages if one.subject.startswith(("ledger.svc.away.", "ledger.svc.sources."))]
