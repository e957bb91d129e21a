"""Since when the ResourceSliceStatuses in Kubernetes are stale: while gpuledger does not write them, they stay as is.

The settings in force have only the time of their last change, so the changes themselves are read from the log. Nothing
here writes.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.api.conditions import rfc3339
from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.domain.fact import Fact
from gpuledger.domain.inventory.state import ModuleSettings, settings_row
from gpuledger.domain.table import Table
from gpuledger.events.settings import SettingsChanged
from gpuledger.events.subjects import aggregate_filter
from gpuledger.ledger.api import Ledger
from gpuledger.projection.definition import Projection
from gpuledger.projection.replay import memory_fold

FEATURE_GATE: Final = "DRAResourceAvailabilityVisibility"


class Staleness(NamedTuple):
    """Since when nobody has written ResourceSliceStatuses, and why nobody does now."""

    since: datetime
    reason: str

    def __str__(self) -> str:
        return f"stale since {rfc3339(self.since)}, because {self.reason}"


async def staleness(ledger: Ledger) -> Staleness | None:
    """The staleness of the statuses in Kubernetes; None while gpuledger writes them."""
    fold = await memory_fold(_SettingsHistory(), ledger)
    subjects = aggregate_filter(SettingsChanged.AGGREGATE, MODULE_CONFIG)
    async for messages in ledger.history(subject_filter=subjects):
        fold.apply_all(messages)
    assert isinstance(fold.state, _Changes)
    return staleness_of(fold.state.changes)


def staleness_of(changes: Iterable[tuple[datetime, ModuleSettings]]) -> Staleness | None:
    """The staleness that follows from the settings as they changed, in the order of the log.

    As in a fold, the latest change counts, and of several at one time the one that was recorded last.
    """
    found: Staleness | None = None
    for at, settings in sorted(changes, key=lambda one: one[0]):
        found = None if settings.keeps_slice_statuses else Staleness(found.since if found else at, _reason(settings))
    return found


def _reason(settings: ModuleSettings) -> str:
    return f"the feature gate {FEATURE_GATE} is off" if settings.enabled else f"the module {MODULE_CONFIG} is disabled"


class _Changes:
    """A state that keeps every change of the settings."""

    def __init__(self) -> None:
        self.changes: list[tuple[datetime, ModuleSettings]] = []

    def tables(self) -> Mapping[str, Table[Any]]:
        """None."""
        return {}


def _changed(state: _Changes, fact: Fact, data: SettingsChanged) -> None:
    state.changes.append((fact.event.time, settings_row(data, fact.event.time)))


class _SettingsHistory(Projection):
    """Collects the changes of the settings."""

    name, version, specs = "settings", 1, ()
    handlers = {SettingsChanged: _changed}

    def new_state(self) -> _Changes:
        """No change."""
        return _Changes()
