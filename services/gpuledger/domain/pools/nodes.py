"""The rows of nodes, which folds of several facts keep: they end once they say nothing."""

from sys import intern

from gpuledger.domain.fact import Fact
from gpuledger.domain.inventory.state import NO_LABELS
from gpuledger.domain.pools.rows import PoolNode
from gpuledger.domain.pools.state import PoolFacts


def put_node(state: PoolFacts, fact: Fact, row: PoolNode) -> None:
    """Store the row of a node, unless it says nothing, and forget what has ended for long of other nodes."""
    if row == _unseen_node(row.node):
        state.node.delete(row.node)
    else:
        state.node.put(row)
        state.node_ends.note(row)
    state.node_ends.forget(fact)
    state.order_ends.forget(fact)


def node_row(state: PoolFacts, node: str) -> PoolNode:
    """The row of a node, or that of one about which nothing is recorded."""
    return state.node.get(node) or _unseen_node(node)


def _unseen_node(node: str) -> PoolNode:
    return PoolNode(intern(node), ready=False, labels=NO_LABELS, labelled_at=None)
