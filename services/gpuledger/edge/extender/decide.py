"""Decides what kube-scheduler gets as answers about a pod and its candidate nodes. Pure.

What fits where is a matter of `domain.sharing`; this puts it into the terms of the scheduler.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from gpuledger.domain.sharing.model import Refusal
from gpuledger.domain.sharing.preemption import Evictable
from gpuledger.edge.extender.wire import SCORE_MAX, FilterResult, Victims


def filter_result(names: Sequence[str], refusals: Mapping[str, Refusal | None]) -> FilterResult:
    """The nodes that fit, in the order that they came in, and the reasons of the others.

    `refusals` has None for a node that fits.
    """
    fits: list[str] = []
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    for name in names:
        refusal = refusals[name]
        if refusal is None:
            fits.append(name)
        else:
            (unresolvable if refusal.unresolvable else failed)[name] = refusal.reason
    return FilterResult(fits, failed, unresolvable)


def refused_everywhere(names: Iterable[str], refusal: Refusal) -> FilterResult:
    """No node takes the pod, because of what the pod itself asks for."""
    return FilterResult((), {}, dict.fromkeys(names, refusal.reason))


def priorities(names: Iterable[str], scores: Mapping[str, int]) -> list[tuple[str, int]]:
    """Scores of 0 to 100 as the scheduler takes them: the best nodes get `SCORE_MAX`, and only they.

    As upstream's normalization does, the best becomes the greatest score (vectors, op `normalize`); the others are
    rounded down, so that no worse node ties with it. A node without a score gets 0.
    """
    best = max(scores.values(), default=0)
    scaled = {score: max(0, score) * SCORE_MAX // best for score in set(scores.values())} if best > 0 else {}
    return [(name, scaled.get(scores.get(name, 0), 0)) for name in names]


def with_more_victims(given: Victims, more: Sequence[Evictable], priority_of: Callable[[str], int | None]) -> Victims:
    """The scheduler's victims of a node and others, the most important first, as the scheduler expects them.

    `priority_of` gives the priority of a pod, None where nobody knows it; such ones stay behind those that they follow.
    Which disruption budgets another victim violates is not known here, so each counts as a violation: the scheduler
    prefers a node where its own victims suffice.
    """
    uids: list[str] = []
    rest = sorted(more, key=lambda one: -one.priority)
    for uid in given.uids:
        priority = priority_of(uid)
        while rest and priority is not None and rest[0].priority > priority:
            uids.append(rest.pop(0).uid)
        uids.append(uid)
    uids += [one.uid for one in rest]
    return Victims(tuple(uids), given.budget_violations + len(more))
