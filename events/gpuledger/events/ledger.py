"""The ledger itself: seals, which prove what stood in it."""

from typing import Annotated

from pydantic import Field

from gpuledger.events.payload import Count, Number, Payload
from gpuledger.events.publishing import SourceKind, by_service
from gpuledger.events.registry import registry

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@registry.event("ledger", "sealed", by_service(SourceKind.SEALS))
class LedgerSealed(Payload):
    """Every message of a partition from `first` to `last` has been read, in this order; its subject is the generation.

    `digest` is the chain's link at `last`. The link of a message is the SHA-256 of the link before it and the digest
    of the message, which is the SHA-256 of its subject and its body, each behind its length in 8 bytes. Before a
    generation's first message stands the digest of its predecessor's last message, or 64 zeros. `previous` is the
    digest of the seal before, None for a generation's first.
    """

    partition: Count = 0
    first: Number
    last: Number
    digest: Digest
    previous: Digest | None = None
