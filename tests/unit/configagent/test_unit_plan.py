"""What systemd is told about a unit, by what it shows of it and by what the agent has done before."""

import pytest

from gpuledger.configagent.host import UnitStatus
from gpuledger.configagent.unit_plan import UnitRules, unit_steps
from gpuledger.domain.machineconfig.desired import DesiredUnit
from support.config_agent import unit

NAME = "a.service"
FRESH = UnitRules((), (), frozenset())
ACTED = UnitRules((NAME,), (), frozenset())
OURS = UnitRules((), (NAME,), frozenset())
REWRITTEN = UnitRules((), (), frozenset({NAME}))

RUNNING = UnitStatus("loaded", "active", "enabled", "simple")
STOPPED = UnitStatus("loaded", "inactive", "disabled", "simple")
FAILED = UnitStatus("loaded", "failed", "disabled", "simple")
ONESHOT = UnitStatus("loaded", "inactive", "static", "oneshot")
MASKED = UnitStatus("masked", "inactive", "masked")
GONE = UnitStatus("not-found", "inactive", "")


def verbs(desired: DesiredUnit, found: UnitStatus, rules: UnitRules = FRESH) -> list[str]:
    return [step.action for step in unit_steps([desired], {NAME: found}, rules) if step.changes]


@pytest.mark.parametrize(
    ("desired", "found", "rules", "expected"),
    [
        (unit(NAME), RUNNING, FRESH, []),
        (unit(NAME, enabled=True), STOPPED, FRESH, ["enable"]),
        (unit(NAME, enabled=True), RUNNING, FRESH, []),
        (unit(NAME, enabled=True), ONESHOT, FRESH, []),
        (unit(NAME, enabled=True), GONE, FRESH, ["enable"]),
        (unit(NAME, enabled=True), RUNNING._replace(unit_file="enabled-runtime"), FRESH, ["enable"]),
        (unit(NAME, enabled=True), RUNNING._replace(unit_file="indirect"), FRESH, ["enable"]),
        (unit(NAME, enabled=True), RUNNING._replace(unit_file="indirect"), ACTED, []),
        (unit(NAME, enabled=True), RUNNING, REWRITTEN, ["enable"]),
        (unit(NAME, enabled=False), RUNNING, FRESH, ["disable"]),
        (unit(NAME, enabled=False), STOPPED, FRESH, []),
        (unit(NAME, enabled=False), GONE, FRESH, []),
        (unit(NAME, enabled=False), GONE, REWRITTEN, ["disable"]),
        (unit(NAME, enabled=False), RUNNING._replace(unit_file="enabled-runtime"), FRESH, ["disable --runtime"]),
        (unit(NAME, "started"), STOPPED, FRESH, ["start"]),
        (unit(NAME, "started"), FAILED, ACTED, ["start"]),
        (unit(NAME, "started"), RUNNING, FRESH, []),
        (unit(NAME, "started"), ONESHOT, FRESH, ["start"]),
        (unit(NAME, "started"), ONESHOT, ACTED, []),
        (unit(NAME, "started"), RUNNING._replace(active="activating"), FRESH, []),
        (unit(NAME, "stopped"), RUNNING, FRESH, ["stop"]),
        (unit(NAME, "stopped"), RUNNING._replace(active="deactivating"), FRESH, ["stop"]),
        (unit(NAME, "stopped"), FAILED, FRESH, []),
        (unit(NAME, "stopped"), GONE, FRESH, []),
        (unit(NAME, "restarted"), RUNNING, FRESH, ["restart"]),
        (unit(NAME, "restarted"), RUNNING, ACTED, []),
        (unit(NAME, "reloaded"), STOPPED, FRESH, ["reload-or-restart"]),
        (unit(NAME, "reloaded"), RUNNING, ACTED, []),
        (unit(NAME, mask=True), RUNNING, FRESH, ["mask"]),
        (unit(NAME, mask=True), GONE, FRESH, ["mask"]),
        (unit(NAME, mask=True), MASKED, FRESH, []),
        (unit(NAME, mask=True), MASKED._replace(unit_file="masked-runtime"), FRESH, ["mask"]),
        (unit(NAME, "stopped", enabled=False, mask=True), RUNNING, FRESH, ["disable", "mask", "stop"]),
        (unit(NAME, "stopped", enabled=False, mask=True), MASKED, FRESH, []),
        (unit(NAME), MASKED, FRESH, []),
        (unit(NAME, "stopped", enabled=False), MASKED, FRESH, []),
        (unit(NAME), MASKED, OURS, ["unmask"]),
        (unit(NAME, enabled=False), MASKED, OURS, ["unmask", "disable"]),
        (unit(NAME, "started", enabled=True), MASKED, FRESH, ["unmask", "enable", "start"]),
    ],
)  # fmt: skip
def test_a_unit_gets_the_verbs_that_it_needs(
    desired: DesiredUnit, found: UnitStatus, rules: UnitRules, expected: list[str]
) -> None:
    assert verbs(desired, found, rules) == expected


def test_verbs_of_all_units_come_in_the_order_in_which_one_may_need_another() -> None:
    units = [
        unit("a.service", "restarted", enabled=True),
        unit("b.service", "stopped", mask=True),
        unit("c.service", "started"),
        unit("d.service"),
    ]
    found = {one.name: STOPPED for one in units} | {"b.service": RUNNING, "gone.service": MASKED}
    rules = UnitRules((), ("gone.service", "other.service"), frozenset())
    assert [(step.action, step.subject) for step in unit_steps(units, found, rules)] == [
        ("unmask", "gone.service"),
        ("enable", "a.service"),
        ("mask", "b.service"),
        ("stop", "b.service"),
        ("start", "c.service"),
        ("restart", "a.service"),
        ("check", "d.service"),
    ]


def test_only_what_lasts_beyond_a_boot_may_need_one() -> None:
    units = [unit(NAME, "restarted", enabled=True, mask=True)]
    lasting = {step.action: step.persists for step in unit_steps(units, {NAME: STOPPED}, FRESH)}
    assert lasting == {"enable": True, "mask": True, "restart": False}
