"""`gpuledger doctor` names what a ModuleConfig sets in vain, as the ledger has it."""

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.events.settings import SettingNotInForce, SettingsChanged
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.tools.doctor import Status
from gpuledger.tools.module_settings import module_check
from support.events import event
from support.projections import publish

WATCHER = "/watchers/moduleconfig"
TYPO = SettingNotInForce(field="x", problem="x is no setting")


async def test_the_latest_settings_of_the_ledger_count(ledger: JetStreamLedger) -> None:
    assert (await module_check(ledger)).detail == "No ModuleConfig sets any"
    broken, mended = SettingsChanged(generation=1, not_in_force=(TYPO,)), SettingsChanged(generation=2)
    await publish(ledger, [event(broken, MODULE_CONFIG, number=1, at=1, source=WATCHER)])
    check = await module_check(ledger)
    assert check.status is Status.WARNING
    assert check.detail == "The ModuleConfig sets in vain: x is no setting. It has no effect."
    await publish(ledger, [event(mended, MODULE_CONFIG, number=2, at=2, source=WATCHER)])
    assert (await module_check(ledger)).status is Status.OK
