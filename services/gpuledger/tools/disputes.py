"""Finds the cards that the newest surveys of several nodes' agents include, in the rows of `inventory`."""

from typing import Final, NamedTuple

from gpuledger.db.engine import AsyncConnection

DISPUTED_SHOWN_MAX: Final = 5
"""How many cards that several agents report are named at once."""

_DISPUTED = """
SELECT report.card, string_agg(DISTINCT report.node, ' and ' ORDER BY report.node), min(device.node)
FROM gpuledger_live.inventory_card_report AS report
JOIN gpuledger_live.inventory_node AS node ON node.node = report.node AND node.agent_at = report.reported_at
LEFT JOIN gpuledger_live.gpu_device AS device ON device.card = report.card AND NOT device.provisional
WHERE node.exists AND report.reporter IN ('agent', 'claim')
GROUP BY report.card HAVING count(DISTINCT report.node) > 1 ORDER BY report.card
"""


class DisputedCard(NamedTuple):
    """A card, the nodes whose agents report it, and the one that has its GPUDevice, if any does."""

    card: str
    nodes: str
    located_on: str | None

    def __str__(self) -> str:
        return f"{self.card} by {self.nodes} ({self.located_on or 'no node'} has it)"


async def disputed_cards(connection: AsyncConnection) -> list[DisputedCard]:
    """The cards that agents of several nodes report, by their ids."""
    rows = await (await connection.execute(_DISPUTED.encode())).fetchall()
    return [DisputedCard(*row) for row in rows]
