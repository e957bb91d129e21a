"""The `inventory` service: decides which GPUDevices exist, and the state of their nodes."""

from gpuledger.deciders.inventory.decide import on_fact
from gpuledger.deciders.inventory.reports import on_report
from gpuledger.domain.fact import Fact
from gpuledger.domain.inventory import facts as inventory_facts
from gpuledger.domain.inventory.folds import HANDLERS
from gpuledger.domain.inventory.reports import REPORT_HANDLERS
from gpuledger.projection.definition import Decisions, Projection, Report
from gpuledger.projection.enforced import InForce


class InventoryProjection(Projection):
    """Folds facts about nodes, cards and settings, and decides the inventory that follows."""

    name = "inventory"
    version = 6
    specs = inventory_facts.SPECS
    handlers = {**HANDLERS, **REPORT_HANDLERS}
    state_class = inventory_facts.InventoryFacts
    decides = True
    judges = True

    def follow_rules(self, state: inventory_facts.InventoryFacts, in_force: InForce) -> None:
        """Who has a card follows from the version of the rule about devices."""
        state.reports_version = in_force.reports_version

    def decide(self, state: inventory_facts.InventoryFacts, fact: Fact) -> Decisions:
        """The decisions that follow from a fact."""
        return on_fact(state, fact)

    def judge(self, state: inventory_facts.InventoryFacts, report: Report) -> Decisions:
        """Whether a report on a device counts."""
        return on_report(state, *report)
