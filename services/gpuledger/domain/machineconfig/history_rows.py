"""The rows of past and present rollouts: one of each rollout of a pool, and one of each update of a node. Data only."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from gpuledger.domain.fact import TableState
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.position import Offset


class RolloutOutcome(StrEnum):
    """How a rollout ended."""

    COMPLETE = "Complete"
    SUPERSEDED = "Superseded"
    WITHDRAWN = "Withdrawn"


class UpdateOutcome(StrEnum):
    """How the update of a node ended: it has what it was to have, it was given back before, or it left its pool.

    A node that is gone has left its pool.
    """

    UPDATED = "Updated"
    RETURNED = "Returned"
    LEFT = "Left"


class ConfigRollout(NamedTuple):
    """A pool's nodes go to one revision, from the decision on until all have it, or are to have another one.

    `previous` is what all nodes had last when it began. `nodes` is how many had still to change, the most at any time,
    `machines` how many the pool had then. `unavailable_max` is the most that were unavailable at once.
    """

    pool: str
    begun_position: Offset
    revision: str
    previous: str | None
    begun_at: datetime
    nodes: int
    machines: int
    unavailable_max: int
    max_unavailable: int
    ended_at: datetime | None
    outcome: str | None


class ConfigUpdate(NamedTuple):
    """A node changes its configuration, from the request for its drain on until it is given back.

    `applying_at` is when its agent was to begin (None: not yet); with `drained` the node was drained before.
    `revision` is what it was to have last. `drains_failed` counts the retry intervals that its drain outlasted,
    `failures` how often the update failed; `reason` and `message` are those of the last failure.
    """

    node: str
    begun_position: Offset
    pool: str
    revision: str | None
    begun_at: datetime
    drained: bool
    applying_at: datetime | None
    drains_failed: int
    is_stuck: bool
    failures: int
    failed_at: datetime | None
    reason: str
    message: str
    phase: str
    ended_at: datetime | None
    outcome: str | None


ROLLOUT: TableSpec[ConfigRollout] = TableSpec(
    "machine_config_rollout", ConfigRollout, ("pool", "begun_position"), retires=("ended_at",)
)
UPDATE: TableSpec[ConfigUpdate] = TableSpec(
    "machine_config_update", ConfigUpdate, ("node", "begun_position"), retires=("ended_at",)
)
SPECS = (ROLLOUT, UPDATE)


class ConfigUpdates(TableState):
    """The state of the projection `updates`: the rollouts and updates that have not ended."""

    def __init__(self) -> None:
        self.rollout = Table(ROLLOUT, "pool")
        self.update = Table(UPDATE, "node")
