"""When the log is sealed. Pure."""

from collections.abc import Sequence
from typing import Final

from gpuledger.domain.fact import time_of_ns
from gpuledger.domain.seals.chain import Chain
from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import Generations, next_after, number_of
from gpuledger.ledger.api import Message
from gpuledger.ledger.identity import anchor_of
from gpuledger.projection.definition import Decision

MESSAGES_PER_SEAL: Final = 1_000


def seal(generations: Generations, chain: Chain, message: Message) -> Sequence[Decision]:
    """The seal that is due once enough messages are unsealed.

    What led to it is the message at its end, so a message without an id leaves the seal to the next one.
    """
    if chain.unsealed < MESSAGES_PER_SEAL:
        return ()
    cause = anchor_of(message.sequence, message.subject, message.data).event_id
    if not cause:
        return ()
    data = LedgerSealed(
        partition=chain.partition,
        first=number_of(next_after(chain.sealed_to)),
        last=number_of(chain.position),
        digest=chain.digest,
        previous=chain.sealed_digest,
    )
    generation = generations.of(message.sequence)
    return (Decision(cause, None, str(generation), time_of_ns(message.recorded_ns), data),)
