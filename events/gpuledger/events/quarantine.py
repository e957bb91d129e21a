"""Quarantine of nodes: the rules by which reports of health monitors set nodes aside, and the circuit breaker.

Operators record whole documents of rules, so that the log says which rules were in force at every position. The
service `health` decides by them; what it wants of a node it requests as maintenance.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from gpuledger.events.maintenance import LABELS_PER_REQUEST_MAX, TAINTS_PER_REQUEST_MAX, Drain, EventId, NodeTaint
from gpuledger.events.node import LabelValue
from gpuledger.events.payload import Count, Name, Payload, Text
from gpuledger.events.publishing import SourceKind, by_service
from gpuledger.events.registry import registry

QUARANTINE: Final = "default"
"""The subject of what concerns the quarantine of all nodes."""

RULESETS_MAX = 64
EXPRESSIONS_MAX = 32
EXPRESSION_LENGTH_MAX = 2048
RULESET_NAME_MAX = 128
PRIORITY_MAX = 1_000_000
EVENT_AGE_MAX_S = 24 * 3600
WINDOW_MAX_S = 24 * 3600

_BY_OPERATORS = by_service(SourceKind.OPERATORS)
_BY_DECIDER = by_service(SourceKind.HEALTH)

RulesetName = Annotated[str, StringConstraints(min_length=1, max_length=RULESET_NAME_MAX)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


DrainScope = Literal["node", "device"]


class RuleExpression(Payload):
    """A condition in CEL. `HealthEvent` is about `event`, `Node` about `node`; without a kind it may be about both."""

    kind: Literal["HealthEvent", "Node"] | None = None
    expression: Annotated[str, StringConstraints(min_length=1, max_length=EXPRESSION_LENGTH_MAX)]


class RuleMatch(Payload):
    """All of `all`, and one at least of `any` where there are any."""

    all: Annotated[tuple[RuleExpression, ...], Field(max_length=EXPRESSIONS_MAX)] = ()
    any: Annotated[tuple[RuleExpression, ...], Field(max_length=EXPRESSIONS_MAX)] = ()


class QuarantineRuleset(Payload):
    """What is done with a node that a report matches: cordoned, tainted, labelled and drained, as far as this says.

    A node that is drained is cordoned as well. With the scope `device` the drain is that of the cards that are
    reported, as far as reports name them by UUID, and the node is not cordoned for it. Of several rulesets that match
    one report, the one with the highest `priority` comes first, then by name.
    """

    name: RulesetName
    enabled: bool = True
    priority: Annotated[int, Field(ge=0, le=PRIORITY_MAX)] = 0
    match: RuleMatch
    cordon: bool = False
    taints: Annotated[tuple[NodeTaint, ...], Field(max_length=TAINTS_PER_REQUEST_MAX)] = ()
    labels: Annotated[dict[Name, LabelValue], Field(max_length=LABELS_PER_REQUEST_MAX)] = {}
    drain: Drain | None = None
    drain_scope: DrainScope = "node"


class BreakerLimits(Payload):
    """The breaker opens before more than `percentage` of the nodes are set aside within `window_s`."""

    percentage: Annotated[int, Field(ge=1, le=100)] = 50
    window_s: Annotated[int, Field(ge=1, le=WINDOW_MAX_S)] = 300


@registry.event("quarantine", "rules-applied", _BY_OPERATORS, introduced=True)
class QuarantineRulesApplied(Payload):
    """The rules from here on, all of them; `digest` is their version: the SHA-256 of their canonical form.

    A report counts as long as it is no older than `max_event_age_s`: when it is recorded, and when the service comes
    to it.
    """

    digest: Digest
    file: Name
    rulesets: Annotated[tuple[QuarantineRuleset, ...], Field(max_length=RULESETS_MAX)] = ()
    breaker: BreakerLimits = BreakerLimits.model_construct()
    max_event_age_s: Annotated[int, Field(ge=1, le=EVENT_AGE_MAX_S)] = 600


@registry.event("quarantine", "breaker-opened", _BY_DECIDER, introduced=True)
class QuarantineBreakerOpened(Payload):
    """No node is set aside any more, until an operator resets the breaker.

    To set `node` aside for `report` would have made it `quarantined` nodes within the window, of `nodes` that exist.
    `version` is the digest of the rules.
    """

    node: Name
    report: EventId
    ruleset: Name
    version: Digest
    quarantined: Count
    nodes: Count
    percentage: Count
    window_s: Count


@registry.event("quarantine", "breaker-reset", _BY_OPERATORS, introduced=True)
class QuarantineBreakerReset(Payload):
    """The breaker is closed again, and its window begins anew here."""

    reason: Text = ""


@registry.event("node", "fault-assessed", _BY_DECIDER, introduced=True)
class NodeFaultAssessed(Payload):
    """The service has come to what `cause` left to be assessed about the node: what follows is decided here.

    `cause` is a report, or a reset of the breaker. Reports that are too old by the time that this is recorded are
    history, and lead to nothing.
    """

    cause: EventId
