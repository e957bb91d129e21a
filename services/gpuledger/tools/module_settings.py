"""What the ledger has about the settings of the ModuleConfig: which of them are not in force, and why.

A ModuleConfig need not have conditions, and Events vanish after an hour; the ledger keeps both. Nothing here writes.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.domain.fact import within
from gpuledger.domain.table import Table
from gpuledger.edge.statuswriter.desired.module import HANDLERS, ModuleCheck, ModuleConfigured, message_of
from gpuledger.events.settings import SettingsChanged
from gpuledger.events.subjects import aggregate_filter
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LedgerError
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import ProjectionError
from gpuledger.projection.replay import memory_fold
from gpuledger.tools.doctor import Check, failed, ok, warning

CHECK: Final = "module settings"
SUBJECTS: Final = aggregate_filter(SettingsChanged.AGGREGATE, MODULE_CONFIG)


async def module_configured(ledger: Ledger) -> ModuleConfigured | None:
    """What the latest settings say about their ModuleConfig; None where no settings are recorded.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    fold = await memory_fold(_LatestSettings(), ledger)
    async for messages in ledger.history(subject_filter=SUBJECTS):
        fold.apply_all(messages)
    assert isinstance(fold.state, _State)
    return fold.state.check.latest


async def module_check(ledger: Ledger) -> Check:
    """The check of `gpuledger doctor` on them."""
    try:
        return settings_check(await module_configured(ledger))
    except (LedgerError, ProjectionError) as error:
        return failed(CHECK, str(error))


def settings_check(found: ModuleConfigured | None) -> Check:
    """Whether everything that the ModuleConfig sets is in force."""
    if found is None or found.generation is None:
        return ok(CHECK, "No ModuleConfig sets any")
    if not found.not_in_force:
        return ok(CHECK, "Everything that the ModuleConfig sets is in force")
    return warning(CHECK, f"The ModuleConfig sets in vain: {message_of(found.not_in_force)}")


class _State:
    def __init__(self) -> None:
        self.check = ModuleCheck()

    def tables(self) -> Mapping[str, Table[Any]]:
        """None."""
        return {}


class _LatestSettings(Projection):
    """Keeps the latest settings alone."""

    name, version, specs = "module-settings", 1, ()
    handlers = within("check", HANDLERS)

    def new_state(self) -> _State:
        """No settings."""
        return _State()
