"""Folds recorded facts about slices, claims, classes, taint rules and node labels into the `availability` state.

Each event about an object replaces the one before it. Objects of different kinds may come in any order: the current
rows are the same. The history of a pool follows the order of the log, so a fact that is older than the last one about
its pool takes effect at the time of that last one.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from gpuledger.domain.dra import rows
from gpuledger.domain.dra.facts import holdings_of, rule_of, slice_of
from gpuledger.domain.dra.objects import ClaimId, Holding, PoolId, TaintRule
from gpuledger.domain.dra.pool_index import view_of
from gpuledger.domain.dra.state import Availability, holding_of, pools_of
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

PENDING, ALLOCATED = "Pending", "Allocated"

_HoldingKey = tuple[str, PoolId, str, str, str | None, bool, tuple[tuple[str, int], ...]]
"""The identity of a holding among those of its claim."""


def _json(payload: Payload) -> str:
    return _text(payload.model_dump(mode="json", exclude_defaults=True))


def _text(document: Mapping[str, Any]) -> str:
    """A document as JSON; documents that mean the same are the same text."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()


def _published(state: Availability, fact: Fact, payload: SlicePublished) -> None:
    name, at = fact.event.subject, fact.event.time
    pool, before = PoolId(payload.driver, payload.pool), state.slice.get(name)
    if before is not None and PoolId(before.driver, before.pool) != pool:
        _withdraw(state, before, at)
    one = slice_of(name, payload)
    state.index(pool).publish(one)
    state.slice.delete(name)
    state.slice.put(
        rows.ResourceSlice(
            name, payload.uid, *pool, view_of(one) or None, payload.generation, payload.pool_generation,
            payload.slice_count, len(payload.devices), at, _json(payload),
        )
    )  # fmt: skip
    state.record(pool, at)


def _withdrawn(state: Availability, fact: Fact, _payload: SliceWithdrawn) -> None:
    row = state.slice.get(fact.event.subject)
    if row is not None:
        _withdraw(state, row, fact.event.time)


def _withdraw(state: Availability, row: rows.ResourceSlice, at: datetime) -> None:
    pool = PoolId(row.driver, row.pool)
    state.index(pool).withdraw(row.name)
    state.slice.delete(row.name)
    state.touch((row.name,))
    state.record(pool, at)


def _requested(state: Availability, fact: Fact, payload: ClaimRequested) -> None:
    _put_claim(state, fact, payload, PENDING, {})


def _allocated(state: Availability, fact: Fact, payload: ClaimAllocated) -> None:
    namespace, _, name = fact.event.subject.partition("/")
    results = holdings_of(ClaimId(namespace, name, payload.uid), payload)
    _put_claim(state, fact, payload, ALLOCATED, {_key(one): one for one in results})


def _released(state: Availability, fact: Fact, _payload: ClaimReleased) -> None:
    state.claim.delete(fact.event.subject)
    _hold(state, fact, {})


def _put_claim(
    state: Availability, fact: Fact, payload: Asked, phase: str, holdings: Mapping[_HoldingKey, Holding]
) -> None:
    """Store the claim's phase and payload, and its holdings."""
    claim, before = fact.event.subject, state.claim.get(fact.event.subject)
    is_as_before = before is not None and (before.phase, before.uid) == (phase, payload.uid)
    since = before.since if before is not None and is_as_before else fact.event.time
    state.claim.put(
        rows.ResourceClaim(
            claim, payload.uid, phase, payload.owner, len(payload.requests), len(holdings), since, _json(payload)
        )
    )  # fmt: skip
    _hold(state, fact, holdings)


def _hold(state: Availability, fact: Fact, holdings: Mapping[_HoldingKey, Holding]) -> None:
    """Make these the claim's only holdings.

    A new holding begins no earlier than the ones it replaces; one that would last no time leaves no row.
    """
    held = {_key(holding_of(row)): row for row in state.held(fact.event.subject)}
    at = max([fact.event.time, *(row.valid_from for row in held.values())])
    changed: dict[PoolId, None] = {}
    for key in [key for key in held if key not in holdings]:
        changed[_release(state, held[key], at)] = None
    for key in [key for key in holdings if key not in held]:
        changed[_allocate(state, fact.event.subject, holdings[key], at)] = None
    for pool in changed:
        state.record(pool, fact.event.time)


def _release(state: Availability, row: rows.DeviceAllocation, at: datetime) -> PoolId:
    holding = holding_of(row)
    state.index(holding.pool).release(holding, state.rules.about(holding.pool))
    if at > row.valid_from:
        state.allocation.put(row._replace(valid_to=at))
    else:
        state.allocation.delete(state.allocation.key_of(row))
    return holding.pool


def _allocate(state: Availability, claim: str, one: Holding, at: datetime) -> PoolId:
    consumed = {name: str(amount) for name, amount in one.consumed.items()}
    state.index(one.pool).hold(one, state.rules.about(one.pool))
    state.allocation.put(
        rows.DeviceAllocation(
            claim, one.claim.uid, *one.pool, one.device, one.request, one.share or "", at, None,
            one.has_admin_access, _text(consumed) if consumed else "",
        )
    )  # fmt: skip
    return one.pool


def _key(one: Holding) -> _HoldingKey:
    consumed = tuple(sorted((name, amount.nanos) for name, amount in one.consumed.items()))
    return one.claim.uid, one.pool, one.device, one.request, one.share, one.has_admin_access, consumed


def _class_defined(state: Availability, fact: Fact, payload: DeviceClassDefined) -> None:
    state.device_class.put(rows.DeviceClass(fact.event.subject, _json(payload)))


def _class_removed(state: Availability, fact: Fact, _payload: DeviceClassRemoved) -> None:
    state.device_class.delete(fact.event.subject)


def _rule_set(state: Availability, fact: Fact, payload: TaintRuleSet) -> None:
    before, rule = state.rules.get(fact.event.subject), rule_of(fact.event.subject, payload)
    state.rules.put(rule)
    state.taint_rule.put(rows.DeviceTaintRule(rule.name, _json(payload)))
    _retaint(state, [rule] if before is None else [before, rule], fact.event.time)


def _rule_lifted(state: Availability, fact: Fact, _payload: TaintRuleLifted) -> None:
    before = state.rules.get(fact.event.subject)
    if before is not None:
        state.rules.drop(before.name)
        state.taint_rule.delete(before.name)
        _retaint(state, [before], fact.event.time)


def _retaint(state: Availability, rules: list[TaintRule], at: datetime) -> None:
    """Record the pools that a changed rule may apply to."""
    for pool in dict.fromkeys(pool for rule in rules for pool in _pools_about(state, rule)):
        state.index(pool).retaint()
        state.record(pool, at)


def _pools_about(state: Availability, rule: TaintRule) -> list[PoolId]:
    found = state.pools() if rule.pool is None else pools_of(state.slice.where("pool", rule.pool))
    return [pool for pool in found if rule.driver in (None, pool.driver)]


def _labelled(state: Availability, fact: Fact, payload: NodeLabelled) -> None:
    state.node_labels.put(rows.NodeLabels(fact.event.subject, _text(payload.labels)))
    _node_changed(state, fact)


def _unlabelled(state: Availability, fact: Fact, _payload: NodeUnlabelled) -> None:
    state.node_labels.delete(fact.event.subject)
    _node_changed(state, fact)


def _node_changed(state: Availability, fact: Fact) -> None:
    """Labels matter to pools with slices of the node itself where those, or others, select nodes by labels."""
    for pool in pools_of(state.slice.where("node", fact.event.subject)):
        index = state.index(pool)
        if any(one.reach is None or one.reach.terms for one in index.slices.values()):
            index.relabel(fact.event.subject)
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
