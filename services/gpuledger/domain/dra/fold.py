"""Dynamic resource allocation as the ledger tells it: a fold of what watchers said of slices, claims, rules and nodes.

Every object replaces what it said before; objects of different kinds come in any order, and the order between them
changes nothing in what is there now. The past of pools is kept in the order of the log: a fact that is older than the
last one about its pool counts from that one's time on.
"""

from collections.abc import Mapping
from datetime import datetime

import orjson

from gpuledger.domain.dra import rows
from gpuledger.domain.dra.facts import holdings_of, rule_of, slice_of
from gpuledger.domain.dra.objects import ClaimId, Holding, PoolId, TaintRule
from gpuledger.domain.dra.pool_index import view_of
from gpuledger.domain.dra.state import Availability, holding_of, pools_of, views
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.events.claim import Asked, ClaimAllocated, ClaimReleased, ClaimRequested
from gpuledger.events.node import NodeLabelled, NodeUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.slice import (
    DeviceClassDefined,
    DeviceClassRemoved,
    SlicePublished,
    SliceWithdrawn,
    TaintRuleLifted,
    TaintRuleSet,
)

__all__ = ["ALLOCATED", "HANDLERS", "PENDING", "Availability", "holding_of", "views"]

PENDING, ALLOCATED = "Pending", "Allocated"

_Place = tuple[str, PoolId, str, str, str | None, bool, tuple[tuple[str, int], ...]]
"""What makes a holding another one."""


def _packed(said: Payload) -> str:
    return orjson.dumps(said.model_dump(mode="json", exclude_defaults=True), option=orjson.OPT_SORT_KEYS).decode()


def _published(state: Availability, fact: Fact, said: SlicePublished) -> None:
    name, at = fact.event.subject, fact.event.time
    pool, before = PoolId(said.driver, said.pool), state.slice.get(name)
    if before is not None and PoolId(before.driver, before.pool) != pool:
        _take_away(state, before, at)
    one = slice_of(name, said)
    state.book(pool).publish(one)
    state.slice.delete(name)
    state.slice.put(
        rows.ResourceSlice(
            name, said.uid, *pool, view_of(one) or None, said.generation, said.pool_generation, said.slice_count,
            len(said.devices), at, _packed(said),
        )
    )  # fmt: skip
    state.record(pool, at)


def _withdrawn(state: Availability, fact: Fact, _said: SliceWithdrawn) -> None:
    row = state.slice.get(fact.event.subject)
    if row is not None:
        _take_away(state, row, fact.event.time)


def _take_away(state: Availability, row: rows.ResourceSlice, at: datetime) -> None:
    pool = PoolId(row.driver, row.pool)
    state.book(pool).withdraw(row.name)
    state.slice.delete(row.name)
    state.touch((row.name,))
    state.record(pool, at)


def _requested(state: Availability, fact: Fact, said: ClaimRequested) -> None:
    _told(state, fact, said, PENDING, {})


def _allocated(state: Availability, fact: Fact, said: ClaimAllocated) -> None:
    namespace, _, name = fact.event.subject.partition("/")
    given = holdings_of(ClaimId(namespace, name, said.uid), said)
    _told(state, fact, said, ALLOCATED, {_place(one): one for one in given})


def _released(state: Availability, fact: Fact, _said: ClaimReleased) -> None:
    state.claim.delete(fact.event.subject)
    _hold(state, fact, {})


def _told(state: Availability, fact: Fact, said: Asked, phase: str, wanted: Mapping[_Place, Holding]) -> None:
    """A claim is in a phase, and holds what it wants now."""
    claim, before = fact.event.subject, state.claim.get(fact.event.subject)
    is_as_before = before is not None and (before.phase, before.uid) == (phase, said.uid)
    since = before.since if before is not None and is_as_before else fact.event.time
    state.claim.put(
        rows.ResourceClaim(
            claim, said.uid, phase, said.owner, len(said.requests), len(wanted), since, _packed(said)
        )
    )  # fmt: skip
    _hold(state, fact, wanted)


def _hold(state: Availability, fact: Fact, wanted: Mapping[_Place, Holding]) -> None:
    """A claim holds what it wants now, and nothing else.

    What it gets it has not before what it held; what it would have held for no time it never had.
    """
    held = {_place(holding_of(row)): row for row in state.held(fact.event.subject)}
    at = max([fact.event.time, *(row.valid_from for row in held.values())])
    changed: dict[PoolId, None] = {}
    for place in [place for place in held if place not in wanted]:
        changed[_let_go(state, held[place], at)] = None
    for place in [place for place in wanted if place not in held]:
        changed[_take(state, fact.event.subject, wanted[place], at)] = None
    for pool in changed:
        state.record(pool, fact.event.time)


def _let_go(state: Availability, row: rows.DeviceAllocation, at: datetime) -> PoolId:
    holding = holding_of(row)
    state.book(holding.pool).release(holding, state.rules.about(holding.pool))
    if at > row.valid_from:
        state.allocation.put(row._replace(valid_to=at))
    else:
        state.allocation.delete(state.allocation.key_of(row))
    return holding.pool


def _take(state: Availability, claim: str, one: Holding, at: datetime) -> PoolId:
    consumed = {name: str(amount) for name, amount in one.consumed.items()}
    state.book(one.pool).hold(one, state.rules.about(one.pool))
    state.allocation.put(
        rows.DeviceAllocation(
            claim, one.claim.uid, *one.pool, one.device, one.request, one.share or "", at, None,
            one.has_admin_access, orjson.dumps(consumed).decode() if consumed else "",
        )
    )  # fmt: skip
    return one.pool


def _place(one: Holding) -> _Place:
    consumed = tuple(sorted((name, amount.nanos) for name, amount in one.consumed.items()))
    return one.claim.uid, one.pool, one.device, one.request, one.share, one.has_admin_access, consumed


def _class_defined(state: Availability, fact: Fact, said: DeviceClassDefined) -> None:
    state.device_class.put(rows.DeviceClass(fact.event.subject, _packed(said)))


def _class_removed(state: Availability, fact: Fact, _said: DeviceClassRemoved) -> None:
    state.device_class.delete(fact.event.subject)


def _rule_set(state: Availability, fact: Fact, said: TaintRuleSet) -> None:
    before, rule = state.rules.get(fact.event.subject), rule_of(fact.event.subject, said)
    state.rules.put(rule)
    state.taint_rule.put(rows.DeviceTaintRule(rule.name, _packed(said)))
    _retaint(state, [rule] if before is None else [before, rule], fact.event.time)


def _rule_lifted(state: Availability, fact: Fact, _said: TaintRuleLifted) -> None:
    before = state.rules.get(fact.event.subject)
    if before is not None:
        state.rules.drop(before.name)
        state.taint_rule.delete(before.name)
        _retaint(state, [before], fact.event.time)


def _retaint(state: Availability, rules: list[TaintRule], at: datetime) -> None:
    """Look again at the pools that a rule may be about."""
    for pool in dict.fromkeys(pool for rule in rules for pool in _pools_about(state, rule)):
        state.book(pool).retaint()
        state.record(pool, at)


def _pools_about(state: Availability, rule: TaintRule) -> list[PoolId]:
    found = state.pools() if rule.pool is None else pools_of(state.slice.where("pool", rule.pool))
    return [pool for pool in found if rule.driver in (None, pool.driver)]


def _labelled(state: Availability, fact: Fact, said: NodeLabelled) -> None:
    labels = orjson.dumps(said.labels, option=orjson.OPT_SORT_KEYS).decode()
    state.node_labels.put(rows.NodeLabels(fact.event.subject, labels))
    _node_changed(state, fact)


def _unlabelled(state: Availability, fact: Fact, _said: NodeUnlabelled) -> None:
    state.node_labels.delete(fact.event.subject)
    _node_changed(state, fact)


def _node_changed(state: Availability, fact: Fact) -> None:
    """Only pools with slices of the node itself look from there, and only where others are selected by labels."""
    for pool in pools_of(state.slice.where("node", fact.event.subject)):
        book = state.book(pool)
        if any(one.reach is None or one.reach.terms for one in book.slices.values()):
            book.relabel(fact.event.subject)
            state.record(pool, fact.event.time)


HANDLERS: Handlers = {
    SlicePublished: _published,
    SliceWithdrawn: _withdrawn,
    ClaimRequested: _requested,
    ClaimAllocated: _allocated,
    ClaimReleased: _released,
    DeviceClassDefined: _class_defined,
    DeviceClassRemoved: _class_removed,
    TaintRuleSet: _rule_set,
    TaintRuleLifted: _rule_lifted,
    NodeLabelled: _labelled,
    NodeUnlabelled: _unlabelled,
}
