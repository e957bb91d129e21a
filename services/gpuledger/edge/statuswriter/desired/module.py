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


class Refused(NamedTuple):
    """A setting that the cluster refuses to put in force, and since when."""

    setting: SettingNotInForce
    at: datetime


MODULE_CONFIGURED_ROW: Final = TableSpec("module_configured", ModuleConfigured, ("module",))


class ModuleCheck(TableState):
    """The latest of them by event time."""

    def __init__(self) -> None:
        self.module = Table(MODULE_CONFIGURED_ROW)
        self.module.never_written()
        self._is_touched = False
        self._refused: Refused | None = None

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

    @property
    def shown(self) -> ModuleConfigured | None:
        """What the latest settings say, with the one that the cluster refuses to put in force."""
        latest, refused = self.latest, self._refused
        if latest is None or latest.generation is None or refused is None:
            return latest
        listed = [one.model_dump() for one in (*latest.not_in_force, refused.setting)]
        changed_at = latest.changed_at if latest.in_vain else refused.at
        return latest._replace(in_vain=json_text(listed), changed_at=changed_at)

    def condition(self) -> Document | None:
        """The condition to show."""
        return None if self.shown is None else self.shown.condition()

    def refuse(self, setting: SettingNotInForce | None, now: datetime) -> bool:
        """Show a setting that the cluster refuses to put in force, or none; whether that is news.

        What a cluster refuses at present is no fact about the settings, so the ledger does not have it.
        """
        before = self._refused
        if (before and before.setting) == setting:
            return False
        at = now if before is None else before.at
        self._refused = None if setting is None else Refused(setting, at)
        self._is_touched = True
        return True

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
    news = message_of(now.not_in_force)
    return f"{MODULE_CONFIGURED} is {now.status}: {now.reason}. {news}".strip()


def _settings_changed(state: ModuleCheck, fact: Fact, data: SettingsChanged) -> None:
    if fact.event.subject == MODULE_CONFIG:
        state.observe(fact.event.time, data)


HANDLERS: Final[Handlers] = {SettingsChanged: _settings_changed}
