"""The ledger itself: seals, which prove what stood in it, and where what left its stream is kept."""

from typing import Annotated

from pydantic import Field

from gpuledger.events.payload import Count, Number, Payload
from gpuledger.events.publishing import SourceKind, by_service
from gpuledger.events.registry import registry

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Location = Annotated[str, Field(min_length=1, max_length=1024)]


@registry.event("ledger", "sealed", by_service(SourceKind.SEALS))
class LedgerSealed(Payload):
    """Every message of a partition from `first` to `last` has been read, in this order; its subject is the generation.

    `digest` is the chain's link at `last`. The link of a message is the SHA-256 of the link before it and the digest
    of the message, which is the SHA-256 of its subject and its body, each behind its length in 8 bytes. Before a
    generation's first message stands the digest of its predecessor's last message, or 64 zeros; behind a closed
    generation the chain goes on. `previous` is the digest of the seal before, None for the first.
    """

    partition: Count = 0
    first: Number
    last: Number
    digest: Digest
    previous: Digest | None = None


@registry.event("ledger", "archived", by_service(SourceKind.OPERATORS), introduced=True)
class LedgerArchived(Payload):
    """A generation was closed, and is archived from `first` to `last`; its subject is that generation.

    It is the first event of the generation behind it, which goes on in the same numbering. `digest` is that of the last
    message, as checkpoints have it, and `link` the link of the chain of digests there. `location` is where the archive
    was put: a folder, or a bucket and prefix.
    """

    generation: Number
    partition: Count = 0
    first: Number
    last: Number
    digest: Digest
    link: Digest
    location: Location
