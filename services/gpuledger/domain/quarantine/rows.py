"""The rows of the quarantine of nodes: rules, Nodes, standing faults, requests and the circuit breaker."""

import re
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.domain.health.codes import CodeTimes, codes_of_text, codes_text
from gpuledger.domain.table import TableSpec

PENDING: Final = "pending"
"""The service has still to come to the fault."""

ACCEPTED: Final = "accepted"
"""A request of the ruleset is in force for it."""

HELD: Final = "held"
"""The circuit breaker holds it back."""

STALE: Final = "stale"
"""It was too old, or there was no such Node or rule, when the service came to it; another report may be fresh."""

OVERRIDDEN: Final = "overridden"
"""An operator has given the node back in spite of it."""


_UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z._:/-]{1,124}").fullmatch
"""What can be the UUID of a card: everything else stays the words of a monitor, which no event about devices takes."""


def is_card(entity: str) -> bool:
    """Whether an entity is the UUID of a card or a MIG instance."""
    return _UUID(entity) is not None


class QuarantineRules(NamedTuple):
    """The document of rules in force; `digest` is its version, `document` its canonical JSON."""

    id: str
    digest: str
    file: str
    applied_at: datetime
    event: str
    document: str


class RulesetCount(NamedTuple):
    """How often a ruleset of the document in force matched, and could not be evaluated, since it was applied.

    `dropped` counts faults that the ruleset matched beyond what is kept of one node.
    """

    ruleset: str
    matched: int
    failed: int
    dropped: int
    failure: str
    failed_at: datetime | None


class QuarantineNode(NamedTuple):
    """The Node of a name: its uid (None: there is none) and labels, a JSON object, as of the latest fact.

    `quarantined_at` is when it was last set aside because of a fault, since the breaker was last reset.
    `former_ended_at` is when the last Node of the name that is gone was deleted; None where there is none.
    """

    node: str
    uid: str | None
    labels: str
    observed_at: datetime
    quarantined_at: datetime | None
    former_ended_at: datetime | None

    def ended_at(self) -> datetime | None:
        """Since when there is no such Node; None while there is."""
        return self.observed_at if self.uid is None else None


class NodeFault(NamedTuple):
    """Something unhealthy on a node that a ruleset matches, until it is healthy again.

    `alias` is how its monitor names the entity where that is a card that the node's agent has found; else empty.
    `report` is the first report of it that may lead to a request, `cause` that or the reset of the breaker that led to
    its being assessed. The latest report of it is of `changed_at`, by its monitor's clock of `observed_at`, which is
    earlier where it waited on its way, and was recorded at `recorded_at`. `codes` is a JSON object of the error codes
    that stand, each with the time of its latest report.
    """

    node: str
    ruleset: str
    monitor: str
    check_name: str
    entity: str
    alias: str
    report: str
    cause: str
    reported_at: datetime
    changed_at: datetime
    observed_at: datetime
    recorded_at: datetime
    state: str
    codes: str

    def code_times(self) -> CodeTimes:
        """The error codes that stand."""
        return codes_of_text(self.codes)

    def with_codes(self, codes: CodeTimes) -> "NodeFault":
        """The fault with other codes standing."""
        return self._replace(codes=codes_text(codes))

    def card(self) -> str | None:
        """The UUID of the card or MIG instance that it is about; None where no report names one so."""
        return self.entity if is_card(self.entity) else None


class HealthyCheck(NamedTuple):
    """When a check of a node was last reported healthy, for an entity or (empty) for all.

    Where neither monitor nor check has a name, the entity is a card that left the node then.
    """

    node: str
    monitor: str
    check_name: str
    entity: str
    healthy_at: datetime


class HealthyCode(NamedTuple):
    """When an error code of a check was last cleared, for an entity or (empty) for all, while others may stand."""

    node: str
    monitor: str
    check_name: str
    entity: str
    code: str
    healthy_at: datetime


class QuarantineRequest(NamedTuple):
    """A ruleset's latest request about a node, which ends with `ended_at`; times are those of the ledger.

    `cause` led to it, a report or a reset of the breaker, under the rules of the digest `version`. `by_hand` means that
    an operator ended it.
    """

    node: str
    ruleset: str
    cause: str
    version: str
    requested_at: datetime
    ended_at: datetime | None
    by_hand: bool


class QuarantineBreaker(NamedTuple):
    """The circuit breaker: open since `opened_at`, None while it is closed; its window began anew at `reset_at`.

    To set `node` aside for `report` would have made it `quarantined` of `nodes`.
    """

    id: str
    opened_at: datetime | None
    node: str
    report: str
    ruleset: str
    quarantined: int
    nodes: int
    reset_at: datetime | None
    reset_by: str


RULES = TableSpec("quarantine_rules", QuarantineRules, ("id",))
RULESET_COUNT = TableSpec("quarantine_ruleset_count", RulesetCount, ("ruleset",))
NODE = TableSpec("quarantine_node", QuarantineNode, ("node",))
FAULT = TableSpec("node_fault", NodeFault, ("node", "ruleset", "monitor", "check_name", "entity"))
HEALTHY = TableSpec("healthy_check", HealthyCheck, ("node", "monitor", "check_name", "entity"))
HEALTHY_CODE = TableSpec("healthy_code", HealthyCode, ("node", "monitor", "check_name", "entity", "code"))
REQUEST = TableSpec("quarantine_request", QuarantineRequest, ("node", "ruleset"))
BREAKER = TableSpec("quarantine_breaker", QuarantineBreaker, ("id",))

SPECS: tuple[TableSpec[Any], ...] = (RULES, RULESET_COUNT, NODE, FAULT, HEALTHY, HEALTHY_CODE, REQUEST, BREAKER)
