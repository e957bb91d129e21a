"""What reports override of the drains of the rulesets that they match. Pure.

A report that skips or forces its drain counts for a variant of each ruleset, with a name of its own: so its fault has
its own request, and what other reports have drained goes on.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from gpuledger.events.health import Behaviour
from gpuledger.events.maintenance import Drain
from gpuledger.events.quarantine import QuarantineRuleset

DRAIN_SKIPPED: Final = " (drain skipped)"
DRAIN_FORCED: Final = " (drain forced)"
"""How the names of variants end."""


def is_variant_name(name: str) -> bool:
    """Whether a name is that of a variant, and so of no ruleset of a document."""
    return name.endswith((DRAIN_SKIPPED, DRAIN_FORCED))


def variants(rulesets: Iterable[QuarantineRuleset]) -> Iterator[QuarantineRuleset]:
    """The variants of rulesets."""
    for one in rulesets:
        yield from filter(None, (_skipped(one), _forced(one)))


def counted_for(ruleset: QuarantineRuleset, drain: Behaviour) -> str | None:
    """The name of what a report that matches a ruleset counts for; None where nothing would be done. Skip wins."""
    if drain.skip and ruleset.drain is not None:
        skipped = _skipped(ruleset)
        return None if skipped is None else skipped.name
    return f"{ruleset.name}{DRAIN_FORCED}" if drain.force and not drain.skip else ruleset.name


def _skipped(ruleset: QuarantineRuleset) -> QuarantineRuleset | None:
    """The ruleset without its drain, but for the cordon that comes with that of a node; None if nothing is left."""
    if ruleset.drain is None:
        return None
    cordon = ruleset.cordon or ruleset.drain_scope == "node"
    if not (cordon or ruleset.taints or ruleset.labels):
        return None
    return ruleset.model_copy(update={"name": f"{ruleset.name}{DRAIN_SKIPPED}", "cordon": cordon, "drain": None})


def _forced(ruleset: QuarantineRuleset) -> QuarantineRuleset:
    """The ruleset with a drain of all namespaces at once, of the cards alone where it drains no more than these."""
    drain = (ruleset.drain or Drain()).model_copy(update={"mode": "Immediate", "namespaces": ()})
    scope = "node" if ruleset.drain is None else ruleset.drain_scope
    return ruleset.model_copy(update={"name": f"{ruleset.name}{DRAIN_FORCED}", "drain": drain, "drain_scope": scope})
