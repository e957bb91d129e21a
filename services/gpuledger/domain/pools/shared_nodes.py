"""Folds which nodes give their cards to sharing, so that pools leave those cards alone.

The label is in force from its fact on. When it is gone, pools wait until `sharing` has followed that fact: an offer
that it decided before, and that is recorded later, then gives nobody a card that a pool has.
"""

from sys import intern

from gpuledger.domain.fact import Fact, Handlers, is_late, storable
from gpuledger.domain.pools.nodes import node_row, put_node
from gpuledger.domain.pools.rows import PoolNode, PoolSharedCard
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.node_sharing import NodeCardsLeft, NodeSharingLabelled, NodeSharingUnlabelled
from gpuledger.events.sharing import NodeDevicesShared


def _labelled(state: PoolFacts, fact: Fact, _data: NodeSharingLabelled) -> None:
    _label(state, fact, shares=True)


def _unlabelled(state: PoolFacts, fact: Fact, _data: NodeSharingUnlabelled) -> None:
    _label(state, fact, shares=False)


def _label(state: PoolFacts, fact: Fact, *, shares: bool) -> None:
    """A label that is observed again, with another policy, is the same label."""
    before, time = node_row(state, fact.event.subject), fact.event.time
    if before.shares == shares or is_late(before.sharing_at, time):
        return
    _put(state, fact, before, before._replace(shares=shares, sharing_at=time))
    state.touch_agent(before.node)


def _cards_left(state: PoolFacts, fact: Fact, data: NodeCardsLeft) -> None:
    before = node_row(state, fact.event.subject)
    _put(state, fact, before, before._replace(left_as_of=storable(data.labelled_at)))


def _shared(state: PoolFacts, fact: Fact, data: NodeDevicesShared) -> None:
    """The cards of the node's last offer are those of no other one."""
    node = intern(fact.event.subject)
    offered = {one.id for one in data.devices if one.id is not None}
    former = {row.uuid for row in state.shared_card.where("node", node)}
    for uuid in former - offered:
        state.shared_card.delete(uuid)
    for uuid in sorted(offered - former):
        state.shared_card.put(PoolSharedCard(uuid, node))
    before = node_row(state, node)
    as_of = before.shared_as_of if data.labelled_at is None else storable(data.labelled_at)
    _put(state, fact, before, before._replace(shared_as_of=as_of))
    if offered != former:
        state.touch_node(node)


def _put(state: PoolFacts, fact: Fact, before: PoolNode, row: PoolNode) -> None:
    put_node(state, fact, row)
    if before.is_left_to_sharing() != row.is_left_to_sharing():
        state.touch_node(row.node)


SHARING_HANDLERS: Handlers = {
    NodeSharingLabelled: _labelled,
    NodeSharingUnlabelled: _unlabelled,
    NodeCardsLeft: _cards_left,
    NodeDevicesShared: _shared,
}
