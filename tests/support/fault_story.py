"""Stories of faults, drawn by a seed: which faults, in which order, and how many events apart.

Pure. A copy of a server's files is drawn before the fault that puts it back.
"""

import random
from typing import NamedTuple

FAULTS_MIN, FAULTS_MAX = 3, 6
EVENTS_BETWEEN_MAX = 60

KILL_NATS, KILL_POSTGRES, KILL_RUNNERS = "kill NATS", "kill PostgreSQL", "kill runners"
HOLD_NATS, HOLD_POSTGRES = "packets to NATS late", "packets to PostgreSQL late"
CUT_NATS, CUT_POSTGRES = "packets to NATS lost", "packets to PostgreSQL lost"
COPY_NATS, RESTORE_NATS = "copy NATS", "restore NATS"
COPY_POSTGRES, RESTORE_POSTGRES = "copy PostgreSQL", "restore PostgreSQL"
CLOCKS, DISK_FULL, NO_SPACE = "set clocks", "quota of NATS used up", "disk of NATS full"
KILL_AGENT, SPOOL_FULL = "kill agent", "disk of agent full"

COPIES = {RESTORE_NATS: COPY_NATS, RESTORE_POSTGRES: COPY_POSTGRES}
FAULTS = (
    *(KILL_NATS, KILL_POSTGRES, KILL_RUNNERS, HOLD_NATS, HOLD_POSTGRES, CUT_NATS, CUT_POSTGRES),
    *(RESTORE_NATS, RESTORE_NATS, RESTORE_POSTGRES, RESTORE_POSTGRES, CLOCKS, DISK_FULL, NO_SPACE),
    *(KILL_AGENT, SPOOL_FULL),
)

LASTING = (HOLD_NATS, HOLD_POSTGRES, CUT_NATS, CUT_POSTGRES, SPOOL_FULL)
"""Faults that take a while, so that the next one may come before they are over."""

NETWORKS = ((HOLD_NATS, CUT_NATS), (HOLD_POSTGRES, CUT_POSTGRES))
OVERLAP = 0.5
AGENT_FACTS_MAX = 12

CLOCKS_AHEAD_S = (-3_600.0, 0.0, 45.0, 7_200.0, 72_000.0)
"""A gap is recorded after 30 s, and a node is given back after an hour; a day would be too far ahead."""


class Step(NamedTuple):
    """A fault, so many events and facts of the agent after the one before; `settles` first lets the rows follow.

    `which` says which of the processes, and `ahead_s` where their clocks go. `within` comes before this one is over.
    """

    fault: str
    events: int
    settles: bool
    which: int
    ahead_s: float
    facts: int
    within: "Step | None" = None

    def __str__(self) -> str:
        return self.fault if self.within is None else f"{self.fault} ({self.within})"


def steps(chance: random.Random) -> list[Step]:
    """The faults of a story."""
    faults = chance.sample(FAULTS, chance.randint(FAULTS_MIN, FAULTS_MAX))
    for restore in (one for one in tuple(faults) if one in COPIES):
        faults.insert(chance.randint(0, faults.index(restore)), COPIES[restore])
    return _overlapping(
        chance,
        [
            Step(
                fault,
                chance.randint(1, EVENTS_BETWEEN_MAX),
                chance.random() < 0.5,
                chance.randint(0, 1),
                chance.choice(CLOCKS_AHEAD_S),
                chance.randint(0, AGENT_FACTS_MAX),
            )
            for fault in faults
        ],
    )


def _overlapping(chance: random.Random, apart: list[Step]) -> list[Step]:
    """The same faults in the same order, some of which come while the one before lasts."""
    found: list[Step] = []
    for step in reversed(apart):
        overlaps = bool(found) and chance.random() < OVERLAP and _may_come_within(step.fault, found[-1])
        found.append(step._replace(within=found.pop()) if overlaps else step)
    return found[::-1]


def _may_come_within(fault: str, following: Step) -> bool:
    """Whether the first fault can last while the following ones come, down to the innermost.

    Who reads has to notice a restored log, so nobody is cut off then, and one network has one fault at a time.
    """
    if fault not in LASTING:
        return False
    inner: Step | None = following
    while inner is not None:
        network = next((pair for pair in NETWORKS if fault in pair), ())
        if inner.fault in (RESTORE_NATS, fault) or inner.fault in network:
            return False
        inner = inner.within
    return True
