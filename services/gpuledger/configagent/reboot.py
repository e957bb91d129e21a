"""Decides whether and when a machine reboots for its configuration. Pure.

A node that has been given back to its users never reboots: nobody has drained it. So a reboot that the pool's policy
asks for happens before the revision counts as done, and one that the policy leaves to people is only shown as pending.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.api.machine_config import RebootStrategy
from gpuledger.configagent.state import AgentMemory
from gpuledger.configagent.steps import Plan
from gpuledger.domain.machineconfig.desired import DesiredConfig

WAIT_MAX_S: Final = 60.0
"""How long the agent waits at most before it looks at the policy and the clock again."""


class RebootStep(StrEnum):
    """What is next about a reboot."""

    NOT_NEEDED = "not needed"
    LEFT_TO_PEOPLE = "left to people"
    WAIT = "wait"
    REBOOT = "reboot"
    REQUESTED = "requested"
    OVERDUE = "overdue"
    FORGOTTEN = "forgotten"


class RebootDecision(NamedTuple):
    """The next step, and the seconds until it is to be decided again."""

    step: RebootStep
    wait_s: float = 0.0


def takes_reboot(config: DesiredConfig, plan: Plan, memory: AgentMemory) -> bool:
    """Whether the machine has to reboot once the plan is carried out.

    A revision that changes nothing that lasts beyond a start of units takes none, if the one before it required a
    reboot as well, and so has had its own.
    """
    if not config.reboot_required:
        return False
    return not memory.previous_required or any(step.persists and step.changes for step in plan.steps)


def standing_request(memory: AgentMemory, boot: str, now: datetime, within_s: float) -> RebootDecision | None:
    """What is next where the machine was asked to reboot in this boot, whatever it is to have by now; None: it was not.

    Nothing takes the question back, so the node must not be given to its users until the machine has rebooted.
    """
    if memory.requested is None or memory.requested.boot != boot:
        return None
    left_s = within_s - (now - memory.requested.at).total_seconds()
    return RebootDecision(RebootStep.REQUESTED, min(left_s, WAIT_MAX_S)) if left_s > 0 else _OVERDUE


def next_step(memory: AgentMemory, boot: str, now: datetime, within_s: float) -> RebootDecision:
    """What is next for the configuration that is on the host; `within_s` bounds how long a reboot may take."""
    applied = memory.applied
    if applied is None or memory.reboot_due != boot:
        return RebootDecision(RebootStep.NOT_NEEDED)
    if applied.reboot_strategy != RebootStrategy.IF_REQUIRED:
        return RebootDecision(RebootStep.LEFT_TO_PEOPLE)
    if standing := standing_request(memory, boot, now, within_s):
        return standing
    if memory.forgotten == boot:
        return RebootDecision(RebootStep.FORGOTTEN)
    earliest = now
    if memory.requested is not None:
        earliest = memory.requested.at + timedelta(seconds=applied.reboot_min_interval_s)
    left_s = (earliest - now).total_seconds()
    return RebootDecision(RebootStep.WAIT, min(left_s, WAIT_MAX_S)) if left_s > 0 else RebootDecision(RebootStep.REBOOT)


_OVERDUE: Final = RebootDecision(RebootStep.OVERDUE)
