"""The `inventory` service: GPUDevices and the state of their nodes, from what watchers and agents tell."""

from gpuledger.deciders.inventory.decide import on_fact
from gpuledger.domain.fact import Fact
from gpuledger.domain.inventory import facts as inventory_facts
from gpuledger.projection.definition import Decisions, Projection


class InventoryProjection(Projection):
    """Folds what was said of nodes, cards and settings, and decides the inventory that follows."""

    name = "inventory"
    version = 1
    specs = inventory_facts.SPECS
    handlers = inventory_facts.HANDLERS
    decides = True

    def new_state(self) -> inventory_facts.InventoryFacts:
        """An empty state."""
        return inventory_facts.InventoryFacts()

    def decide(self, state: inventory_facts.InventoryFacts, fact: Fact) -> Decisions:
        """What follows from a fact."""
        return on_fact(state, fact)
