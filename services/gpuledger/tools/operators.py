"""What the user of the terminal records, in their own name."""

import getpass
from datetime import datetime

from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.payload import Payload
from gpuledger.events.position import Position
from gpuledger.ledger.api import Expected, Ledger, Outgoing
from gpuledger.runtime.clock import random_id, system_clock


def operator() -> str:
    """The source of the events that the user of the terminal records."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "unknown"
    return f"/operators/{name.replace('/', '_') or 'unknown'}"


async def record(
    ledger: Ledger, subject: str, data: Payload, time: datetime | None = None, expected: Expected | None = None
) -> Position:
    """Record an event of the user about a subject, of now or of a `time`; returns where the log has it.

    Raises:
        SequenceConflictError: what is `expected` is not so.
    """
    event = Event(random_id(), operator(), data.TYPE, subject, time or system_clock(), data, random_id(), 1)
    (receipt,) = await ledger.publish_many([Outgoing(nats_subject_of(event), event.id, encode(event))], expected)
    return ledger.generations.position(receipt.sequence)
