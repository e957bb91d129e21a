"""The `seals` service: reads every message as it was recorded, and seals the log in a chain of digests."""

from gpuledger.deciders.seals.decide import seal
from gpuledger.domain.seals import chain
from gpuledger.events.envelope import Undecoded
from gpuledger.events.position import Generations
from gpuledger.ledger.api import Message
from gpuledger.ledger.identity import LedgerIdentity
from gpuledger.projection.definition import Decisions, Projection


class SealsProjection(Projection):
    """Links every message to the chain, whatever it holds, and decides when a seal is due.

    A restore changes what is sealed, if only by the times of first recordings, so what it recorded is sealed anew.
    """

    name = "seals"
    version = 3
    same_rows_as = (2,)
    specs = chain.SPECS
    handlers = chain.HANDLERS
    state_class = chain.Seals
    decides = True
    survives_restore = False
    reads = True

    def begin(self, state: chain.Seals, identity: LedgerIdentity) -> None:
        """Start the chain where the generation before ended; through closed generations it goes on."""
        state.begin(identity.beginning)

    def read(
        self,
        state: chain.Seals,
        message: Message,
        event: Undecoded | None,  # noqa: ARG002
        generations: Generations,
    ) -> Decisions:
        """Link the message, and seal the chain when it is long enough."""
        return seal(generations, state.link(message.sequence, message.subject, message.data), message)
