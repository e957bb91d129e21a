"""The label of its node, as an agent reads it from the ledger."""

from gpuledger.agent.gateway.node_label import KEPT_S, NodeLabel
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.ledger.permissions import node_labels_subject
from gpuledger.runtime.node_label_settings import DEFAULT_INSTANCE_TYPE_LABEL
from support.edges import MemoryEdge
from support.node_labels import labelled


class Reading:
    """A label that is read from a ledger in memory, at a time that stands still."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.edge = MemoryEdge(MemoryLedger())
        self.label = NodeLabel("w.1", DEFAULT_INSTANCE_TYPE_LABEL, self.edge.connect, lambda: self.now_s)

    async def later(self) -> str:
        self.now_s += KEPT_S
        return await self.label.value()


async def test_a_value_is_read_again_once_it_is_old() -> None:
    reading = Reading()
    assert await reading.label.value() == ""
    await reading.edge.publish(labelled("w.1", "t4"))
    await reading.edge.publish(labelled("w.2", "a10", number=2))
    assert await reading.label.value() == "", "what was read counts for a while"
    assert await reading.later() == "t4"
    await reading.edge.publish(labelled("w.1", number=3))
    assert await reading.later() == ""


async def test_the_last_value_stands_while_the_ledger_does_not_answer() -> None:
    reading = Reading()
    await reading.edge.publish(labelled("w.1", "t4"))
    assert await reading.label.value() == "t4"
    reading.edge.away = "it restarts"
    assert await reading.later() == "t4"
    reading.edge.away = None
    await reading.edge.publish(labelled("w.1", "p5", number=2))
    assert await reading.label.value() == "t4", "nor is it asked again at once"
    assert await reading.later() == "p5"


async def test_an_event_that_cannot_be_read_changes_nothing() -> None:
    reading = Reading()
    await reading.edge.publish(labelled("w.1", "t4"))
    assert await reading.label.value() == "t4"
    await reading.edge.publish(labelled("w.1", number=2)._replace(subject=node_labels_subject("w.1"), data=b"{"))
    assert await reading.later() == "t4"
