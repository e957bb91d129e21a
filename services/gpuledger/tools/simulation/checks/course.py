"""Takes the pods of the simulated fleet through their checks, one after the other. Pure.

A check of a gang waits until the ConfigMap has all pods of the gang, and then for all of them to have come so far. A
check that fails is tried again after growing pauses, or ends its pod. What others do in real time meanwhile (the
service that keeps the ConfigMap, people) has its time at any speed: `Rates.pace`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Any, Final, NamedTuple

from gpuledger.api.preflight import GANG_CHECKS, ExitCode
from gpuledger.domain.preflight.nccl_errors import NcclCode
from gpuledger.events.preflight import PreflightResult
from gpuledger.tools.simulation.allocation import FleetAllocation, RunningPod
from gpuledger.tools.simulation.checks import results
from gpuledger.tools.simulation.checks.gangs import GangChanges, Gangs
from gpuledger.tools.simulation.checks.pods import ConfigMapKey, InjectedCheck, PodChecks
from gpuledger.tools.simulation.names import place_of
from gpuledger.tools.simulation.schedule import Schedule
from gpuledger.tools.simulation.workload import Chance, Rates

START_S: Final = 1.0
"""Simulated seconds from a pod's binding, or from one check to the next, until a container runs."""

SEEN_S: Final = 2.0
"""The least real seconds that a check takes, so that people see it."""

GANG_TIMEOUT_S: Final = 600.0
"""Real seconds after which a check gives up waiting for the gang's ConfigMap."""

PEERS_TIMEOUT_S: Final = 300.0
"""Real seconds after which it gives up waiting for the other pods of the gang."""

PAUSE_S: Final = 10.0
PAUSE_MAX_S: Final = 300.0
PAUSES_MAX: Final = 5
"""Real seconds before a check is tried again: at first, doubled so many times, at most."""


class CheckStarted(NamedTuple):
    """The container of a check starts; it did so `attempt` times before."""

    at_s: float
    running_pod: RunningPod
    check: str
    attempt: int


class CheckEnded(NamedTuple):
    """The container of a check ends; `pause_s` is how long until it is tried again, None: it is not."""

    at_s: float
    running_pod: RunningPod
    check: str
    attempt: int
    result: PreflightResult
    exit_code: ExitCode
    pause_s: float | None = None


class ChecksPassed(NamedTuple):
    """All checks of a pod have passed, and its containers start."""

    at_s: float
    running_pod: RunningPod


CheckHappening = CheckStarted | CheckEnded | ChecksPassed


class _Stage(Enum):
    ALONE = "alone"
    GATHERING = "gathering"
    """Waits for the gang's ConfigMap."""

    JOINED = "joined"
    """Waits for the other pods of the gang."""

    TOGETHER = "together"


@dataclass(slots=True)
class _Course:
    """How far a pod is. An act of an earlier `turn` counts no more."""

    running_pod: RunningPod
    checks: PodChecks
    address: str
    passed: int
    attempt: int
    turn: int = 0
    stage: _Stage = _Stage.ALONE
    began_s: float = 0.0
    gang_wait_s: float | None = None
    lost_peer: bool = False
    """Whether another pod of the gang fails, or is gone, while they measure together."""

    @property
    def name(self) -> str:
        return place_of(self.running_pod.pod.name).name

    @property
    def check(self) -> InjectedCheck:
        return self.checks.checks[self.passed]

    @property
    def gang(self) -> ConfigMapKey | None:
        """The gang that the present check is for; None where it is for the pod alone."""
        return self.checks.gang if self.check.name in GANG_CHECKS else None


class Checking:
    """The pods that have checks before them. `start` is called when a pod has passed, `end` when it has failed."""

    def __init__(
        self,
        schedule: Schedule[Any],
        allocation: FleetAllocation,
        chance: Chance,
        rates: Rates,
        start: Callable[[RunningPod], None],
        end: Callable[[str], list[Any]],
    ) -> None:
        self._schedule = schedule
        self._allocation = allocation
        self._chance = chance
        self._pace = rates.pace
        self._start_pod = start
        self._end_pod = end
        self._courses: dict[str, _Course] = {}
        self._gangs = Gangs()
        self._turns = count(1)

    def __contains__(self, pod: str) -> bool:
        return pod in self._courses

    def begin(self, running_pod: RunningPod) -> None:
        """A pod is on its node, and begins with its checks, or goes on with them."""
        checks = running_pod.pod.checks
        assert checks is not None, "only a pod with checks goes through them"
        address = checks.address or self._allocation.address(running_pod)
        course = _Course(running_pod, checks, address, checks.passed, checks.attempt)
        self._courses[running_pod.pod.name] = course
        self._next(course, START_S, self._start)

    def address(self, pod: str) -> str:
        """The address of a pod that has checks before it."""
        return self._courses[pod].address

    def forget(self, pod: str) -> None:
        """A pod has ended."""
        course = self._courses.pop(pod, None)
        if course is not None and course.stage is _Stage.TOGETHER:
            self._lose(course)

    def follow(self, changes: GangChanges) -> None:
        """The ConfigMaps of gangs change."""
        for gang in sorted(self._gangs.follow(changes)):
            self._gather(gang)

    def _next(self, course: _Course, after_s: float, act: Callable[[_Course], list[Any]]) -> None:
        """What a pod does next; whatever it was to do before does not happen."""
        course.turn = next(self._turns)
        self._schedule.add(after_s, self._act, (course, course.turn, act))

    def _act(self, what: tuple[_Course, int, Callable[[_Course], list[Any]]]) -> list[Any]:
        course, turn, act = what
        is_there = self._courses.get(course.running_pod.pod.name) is course
        return act(course) if is_there and course.turn == turn else []

    def _start(self, course: _Course) -> list[Any]:
        now_s, running_pod = self._schedule.now_s, course.running_pod
        if course.passed == len(course.checks.checks):
            self.forget(running_pod.pod.name)
            self._start_pod(running_pod)
            return [ChecksPassed(now_s, running_pod)]
        course.began_s, course.gang_wait_s, course.lost_peer = now_s, None, False
        started = CheckStarted(now_s, running_pod, course.check.name, course.attempt)
        if course.gang is None:
            course.stage = _Stage.ALONE
            self._measure(course)
        else:
            course.stage = _Stage.GATHERING
            self._next(course, GANG_TIMEOUT_S * self._pace, self._give_up_gang)
            self._gather(course.gang)
        return [started]

    def _measure(self, course: _Course) -> None:
        self._next(course, max(results.seconds_of(course.check.name), SEEN_S * self._pace), self._finish)

    def _gather(self, gang: ConfigMapKey) -> None:
        """Bring the pods of a gang together that its ConfigMap has, with the addresses that they have."""
        peers = self._gangs.complete(gang)
        if peers is None:
            return
        waiting = [one for one in self._waiting(gang) if peers.get(one.name) == one.address]
        for course in waiting:
            if course.stage is _Stage.GATHERING:
                course.stage, course.gang_wait_s = _Stage.JOINED, self._took_s(course)
                self._next(course, PEERS_TIMEOUT_S * self._pace, self._give_up_peers)
        if {one.name for one in waiting} == set(peers):
            for course in waiting:
                course.stage = _Stage.TOGETHER
                self._measure(course)

    def _waiting(self, gang: ConfigMapKey) -> list[_Course]:
        stages = (_Stage.GATHERING, _Stage.JOINED)
        courses = (one for one in self._courses.values() if one.passed < len(one.checks.checks))
        return [one for one in courses if one.gang == gang and one.stage in stages]

    def _took_s(self, course: _Course) -> float:
        """Real seconds since the check began, where it waits for others; else as a machine takes."""
        return round((self._schedule.now_s - course.began_s) / self._pace, 3)

    def _finish(self, course: _Course) -> list[Any]:
        check, wait_s = course.check, course.gang_wait_s
        took_s = results.seconds_of(check.name) + (wait_s or 0.0)
        code = self._failure(course)
        if code is not None:
            return self._failed(course, results.failed(check, code, took_s, wait_s))
        result = self._skipped(course) or results.passed(check, took_s, wait_s, self._chance.random())
        ended = CheckEnded(
            self._schedule.now_s, course.running_pod, check.name, course.attempt, result, ExitCode.PASSED
        )
        course.passed, course.attempt, course.stage = course.passed + 1, 0, _Stage.ALONE
        self._next(course, START_S, self._start)
        return [ended]

    def _skipped(self, course: _Course) -> PreflightResult | None:
        cards = len(course.running_pod.shares)
        return results.skipped(course.check, cards=cards, has_gang=course.checks.gang is not None)

    def _failure(self, course: _Course) -> str | None:
        own = self._own_failure(course)
        if course.stage is not _Stage.TOGETHER:
            return own
        if any(self._own_failure(one) for one in self._together(course)):
            self._lose(course)
        return own or (NcclCode.TIMEOUT if course.lost_peer else None)

    def _together(self, course: _Course) -> list[_Course]:
        """The pods of a gang that measure together."""
        both = (one for one in self._courses.values() if one.checks.gang == course.checks.gang)
        return [one for one in both if one.stage is _Stage.TOGETHER]

    def _lose(self, course: _Course) -> None:
        for one in self._together(course):
            one.lost_peer = True

    def _own_failure(self, course: _Course) -> str | None:
        return results.failure_code(course.check, is_faulty=self._allocation.has_faulty(course.running_pod))

    def _give_up_gang(self, course: _Course) -> list[Any]:
        return self._failed(course, results.gang_timed_out(course.check, self._took_s(course)))

    def _give_up_peers(self, course: _Course) -> list[Any]:
        took_s, wait_s = self._took_s(course), course.gang_wait_s
        return self._failed(course, results.failed(course.check, NcclCode.TIMEOUT, took_s, wait_s))

    def _failed(self, course: _Course, result: PreflightResult) -> list[Any]:
        retried = course.checks.retries
        pause_s = min(PAUSE_S * 2 ** min(course.attempt, PAUSES_MAX), PAUSE_MAX_S) if retried else None
        ended = CheckEnded(
            self._schedule.now_s,
            course.running_pod,
            course.check.name,
            course.attempt,
            result,
            results.exit_code(result),
            pause_s,
        )
        if pause_s is None:
            return [ended, *self._end_pod(course.running_pod.pod.name)]
        course.attempt, course.stage = course.attempt + 1, _Stage.ALONE
        self._next(course, pause_s * self._pace, self._start)
        return [ended]
