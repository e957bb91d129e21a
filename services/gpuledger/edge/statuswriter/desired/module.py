"""Whether everything that the ModuleConfig sets is in force: its condition `Configured`, and when that is news. Pure.

The watcher that reads the ModuleConfig records what is not in force, with the generation that it read. Nothing here
judges a setting.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

import orjson

from gpuledger.api.conditions import MODULE_CONFIGURED, ConditionStatus
from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.reasons import ModuleReason
from gpuledger.domain.fact import Fact, Handlers, TableState, is_late
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.inventory.status import condition
from gpuledger.domain.table import Table, TableSpec
from gpuledger.edge.statuswriter.objects import Document
from gpuledger.events.settings import SettingNotInForce, SettingsChanged


class ModuleConfigured(NamedTuple):
    """What the latest settings say about their ModuleConfig; `changed_at` is when the status last changed.

    Without a generation there is no ModuleConfig, or nobody has checked it. `in_vain` is a JSON array of the settings
    that are not in force, empty where all are.
    """

    module: str
    at: datetime
    changed_at: datetime
    generation: int | None
    in_vain: str

    @property
    def not_in_force(self) -> tuple[SettingNotInForce, ...]:
        """The settings that are not in force."""
        return tuple(map(SettingNotInForce.model_validate, orjson.loads(self.in_vain))) if self.in_vain else ()

    @property
    def status(self) -> ConditionStatus | None:
        """The condition's status; None where there is nothing to show."""
        if self.generation is None:
            return None
        return ConditionStatus.FALSE if self.in_vain else ConditionStatus.TRUE

    @property
    def reason(self) -> ModuleReason:
        """The condition's reason."""
        return ModuleReason.SETTINGS_NOT_IN_FORCE if self.in_vain else ModuleReason.SETTINGS_IN_FORCE

    def condition(self) -> Document | None:
        """The condition, with the generation of the spec that it is about; None where there is nothing to show."""
        if self.status is None:
            return None
        message = message_of(self.not_in_force)
        shown = condition(MODULE_CONFIGURED, self.status, self.reason, self.changed_at, message)
        return shown | {"observedGeneration": self.generation}


MODULE_CONFIGURED_ROW: Final = TableSpec("module_configured", ModuleConfigured, ("module",))


class ModuleCheck(TableState):
    """The latest of them by event time."""

    def __init__(self) -> None:
        self.module = Table(MODULE_CONFIGURED_ROW)
        self.module.never_written()
        self._is_touched = False

    @property
    def latest(self) -> ModuleConfigured | None:
        """What the latest settings say; None where there are none."""
        return self.module.get(MODULE_CONFIG)

    def take_touched(self) -> dict[str, None]:
        """The module, where its condition may have changed since the last call."""
        is_touched, self._is_touched = self._is_touched, False
        return {MODULE_CONFIG: None} if is_touched else {}

    def modules(self) -> list[str]:
        """The module, where it has the condition."""
        return [] if self.condition() is None else [MODULE_CONFIG]

    def condition(self) -> Document | None:
        """The condition to show."""
        return None if self.latest is None else self.latest.condition()

    def observe(self, at: datetime, data: SettingsChanged) -> None:
        """Take the settings, unless later ones are there already."""
        before = self.latest
        if is_late(before and before.at, at):
            return
        in_vain = json_text([one.model_dump() for one in data.not_in_force]) if data.not_in_force else ""
        found = ModuleConfigured(MODULE_CONFIG, at, at, data.generation, in_vain)
        if before is not None and before.status == found.status:
            found = found._replace(changed_at=before.changed_at)
        self.module.put(found)
        self._is_touched = True


def message_of(settings: Iterable[SettingNotInForce]) -> str:
    """In sentences what is not in force, why, and what is in force instead."""
    return " ".join(map(sentence, settings))


def sentence(one: SettingNotInForce) -> str:
    """One of them."""
    end = "" if one.problem.endswith("?") else "."
    instead = f"In force instead: {one.in_force}." if one.in_force else "It has no effect."
    return f"{one.problem}{end} {instead}"


def news_of(before: ModuleConfigured | None, now: ModuleConfigured | None) -> str | None:
    """What is worth an Event: settings that are not in force, or that no more are; None where that did not change."""
    was = () if before is None else before.not_in_force
    if now is None or now.status is None or now.not_in_force == was:
        return None
    return message_of(now.not_in_force)


def _settings_changed(state: ModuleCheck, fact: Fact, data: SettingsChanged) -> None:
    if fact.event.subject == MODULE_CONFIG:
        state.observe(fact.event.time, data)


HANDLERS: Final[Handlers] = {SettingsChanged: _settings_changed}
