"""All that the rollout of machine configuration folds. What was imported is history, and leads to nothing. Pure."""

from gpuledger.domain.fact import Fact, Handler, Handlers
from gpuledger.domain.machineconfig.decided import DECISION_HANDLERS
from gpuledger.domain.machineconfig.definitions import DEFINITION_HANDLERS
from gpuledger.domain.machineconfig.holding import HOLDING_HANDLERS
from gpuledger.domain.machineconfig.maintenance import MAINTENANCE_HANDLERS
from gpuledger.domain.machineconfig.nodes import NODE_HANDLERS
from gpuledger.domain.machineconfig.state import Rollout
from gpuledger.events.payload import Payload


def _unless_imported(handler: Handler) -> Handler:
    def fold(state: Rollout, fact: Fact, data: Payload) -> None:
        if not fact.event.imported:
            handler(state, fact, data)

    return fold


HANDLERS: Handlers = {
    kind: _unless_imported(handler)
    for kind, handler in {
        **DEFINITION_HANDLERS,
        **NODE_HANDLERS,
        **HOLDING_HANDLERS,
        **MAINTENANCE_HANDLERS,
        **DECISION_HANDLERS,
    }.items()
}
