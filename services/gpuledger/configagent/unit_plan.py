"""Plans what systemd is to do about the units of a configuration, by what it shows of them. Pure.

Enabling comes before starting and stopping before starting, across all units, so that one may need another. systemd's
manual, systemctl(1) and systemd.unit(5), has what the states of unit files mean.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from gpuledger.configagent.host import UnitStatus
from gpuledger.configagent.steps import Step, Work
from gpuledger.domain.machineconfig.desired import DesiredUnit

NOT_FOUND: Final = UnitStatus("not-found")
ENABLED: Final = frozenset({"enabled", "static", "alias", "generated"})
"""States of unit files in which there is nothing to enable."""

INDIRECT: Final = "indirect"
"""Enabling such a unit enables others and leaves its own state; it is done once for a revision."""

MASKED: Final = frozenset({"masked", "masked-runtime"})
RUNNING: Final = frozenset({"active", "reloading", "activating", "refreshing"})
ENDED: Final = frozenset({"inactive", "failed"})
ONESHOT: Final = "oneshot"
"""A service of this type ends by itself, so it is started once for a revision."""

UNMASK, MASK, ENABLE, DISABLE = "unmask", "mask", "enable", "disable"
STOP, START, RESTART, RELOAD = "stop", "start", "restart", "reload-or-restart"
"""Verbs of systemctl. A unit that cannot reload is restarted, one that does not run is started."""

RUNS: Final = frozenset({"started", "restarted", "reloaded"})
ORDER: Final = (UNMASK, ENABLE, DISABLE, f"{DISABLE} --runtime", MASK, STOP, START, RESTART, RELOAD)


class UnitRules(NamedTuple):
    """What the agent has done: units that were restarted for this very revision, and units that it masked.

    The unit files of `rewritten` change before the units do, so that what systemd shows of them is of no use.
    """

    acted: Collection[str]
    masked: Collection[str]
    rewritten: Collection[str]


def unit_steps(units: Iterable[DesiredUnit], found: Mapping[str, UnitStatus], rules: UnitRules) -> Iterator[Step]:
    """The steps for all units, in the order of work; one that does nothing for each unit that is as it should be."""
    steps: list[Step] = []
    names = set()
    for unit in units:
        names.add(unit.name)
        of_unit = [*_of_unit(unit, found.get(unit.name, NOT_FOUND), rules)]
        steps += of_unit or [Step(unit.name, "check")]
    for name in sorted(set(rules.masked) - names):
        if found.get(name, NOT_FOUND).unit_file in MASKED:
            steps.append(_step(name, UNMASK, note="no longer in the configuration"))
    yield from sorted(steps, key=lambda step: (_place(step), step.subject))


def _place(step: Step) -> int:
    return ORDER.index(step.action) if step.action in ORDER else len(ORDER)


def _of_unit(unit: DesiredUnit, found: UnitStatus, rules: UnitRules) -> Iterator[Step]:
    is_masked = found.unit_file in MASKED
    if is_masked and not unit.mask and _may_unmask(unit, rules):
        yield _step(unit.name, UNMASK)
        is_masked = False
        found = found._replace(unit_file="", load="loaded")
    if unit.name in rules.rewritten:
        found = found._replace(unit_file="", load="loaded")
    if not is_masked:
        yield from _enabling(unit, found, rules)
    if unit.mask and found.unit_file != "masked":
        yield _step(unit.name, MASK)
    if unit.state is not None:
        yield from _STATES[unit.state](unit, found, rules)


def _may_unmask(unit: DesiredUnit, rules: UnitRules) -> bool:
    """Whether the agent masked it, or it could not do what it is to do; else who masked it had a reason."""
    return unit.name in rules.masked or bool(unit.enabled) or unit.state in RUNS


def _enabling(unit: DesiredUnit, found: UnitStatus, rules: UnitRules) -> Iterator[Step]:
    is_done = found.unit_file == INDIRECT and unit.name in rules.acted
    if unit.enabled is True and found.unit_file not in ENABLED and not is_done:
        yield _step(unit.name, ENABLE, acts=found.unit_file == INDIRECT)
    elif unit.enabled is False and found.load != "not-found":
        if found.unit_file == "enabled-runtime":
            yield _step(unit.name, f"{DISABLE} --runtime")
        elif found.unit_file in ("enabled", ""):
            yield _step(unit.name, DISABLE)


def _started(unit: DesiredUnit, found: UnitStatus, rules: UnitRules) -> Iterator[Step]:
    if found.active not in RUNNING and not (found.kind == ONESHOT and unit.name in rules.acted):
        yield Step(unit.name, START, Work.SYSTEMCTL, acts=True)


def _stopped(unit: DesiredUnit, found: UnitStatus, _: UnitRules) -> Iterator[Step]:
    if found.active not in ENDED:
        yield Step(unit.name, STOP, Work.SYSTEMCTL)


def _restarted(unit: DesiredUnit, _: UnitStatus, rules: UnitRules) -> Iterator[Step]:
    if unit.name not in rules.acted:
        yield Step(unit.name, RESTART, Work.SYSTEMCTL, acts=True)


def _reloaded(unit: DesiredUnit, _: UnitStatus, rules: UnitRules) -> Iterator[Step]:
    if unit.name not in rules.acted:
        yield Step(unit.name, RELOAD, Work.SYSTEMCTL, acts=True)


_STATES: Final[Mapping[str, Callable[[DesiredUnit, UnitStatus, UnitRules], Iterator[Step]]]] = {
    "started": _started,
    "stopped": _stopped,
    "restarted": _restarted,
    "reloaded": _reloaded,
}


def _step(name: str, verb: str, *, note: str = "", acts: bool = False) -> Step:
    """A step that changes what the unit does at the next boot."""
    return Step(name, verb, Work.SYSTEMCTL, note=note, persists=True, acts=acts)
