"""How many pods our Deployments have, as the setting `highAvailability` decides. Pure.

Where nobody ever set it gpuledger leaves the number alone: it is the chart's, or that of people who scaled by hand. A
Deployment without pods was stopped by people and stays so.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.domain.fact import Fact, Handlers, TableState, is_late
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.settings import SettingsChanged

AVAILABLE_MIN: Final = 2
"""The pods of a service that is highly available."""


class AvailabilitySetting(NamedTuple):
    """The latest `highAvailability`, and the latest that was true or false; each as of a time, None without one."""

    module: str
    at: datetime
    present: bool | None
    last_at: datetime | None
    last: bool | None


AVAILABILITY: Final = TableSpec("availability_setting", AvailabilitySetting, ("module",))


class Availability(TableState):
    """The setting as the ledger has it."""

    def __init__(self) -> None:
        self.setting = Table(AVAILABILITY)
        self.setting.never_written()

    @property
    def latest(self) -> AvailabilitySetting | None:
        """The latest setting by event time; None before any settings were recorded."""
        return self.setting.get(MODULE_CONFIG)

    def observe(self, at: datetime, available: bool | None) -> None:
        """Take the setting, unless a later one is there already, whatever the order in which they were recorded."""
        row = self.latest or AvailabilitySetting(MODULE_CONFIG, at, None, None, None)
        if not is_late(row.at, at):
            row = row._replace(at=at, present=available)
        if available is not None and not is_late(row.last_at, at):
            row = row._replace(last_at=at, last=available)
        self.setting.put(row)


def replicas_set(available: bool, given: int) -> int:
    """How many pods a Deployment has that the chart gives a number of."""
    return max(AVAILABLE_MIN, given) if available else 1


def scaled_to(setting: AvailabilitySetting | None, *, given: int, present: int) -> int | None:
    """How many pods a Deployment should have instead; None leaves it as it is.

    `given` is the chart's number. A setting that was taken back leaves that, where the setting's number is still there.
    More pods than high availability takes may stay.
    """
    if setting is None or present == 0:
        return None
    if setting.present is not None:
        number = replicas_set(setting.present, given)
        number = max(number, present) if setting.present else number
    elif setting.last is not None and present == replicas_set(setting.last, given) and given > 0:
        number = given
    else:
        return None
    return None if number == present else number


def _settings_changed(state: Availability, fact: Fact, data: SettingsChanged) -> None:
    if fact.event.subject == MODULE_CONFIG:
        state.observe(fact.event.time, data.high_availability)


HANDLERS: Final[Handlers] = {SettingsChanged: _settings_changed}


def given_replicas(annotations: Mapping[str, Any], name: str) -> int | None:
    """The number of an annotation; None where it has none."""
    text = annotations.get(name)
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() else None
