"""Since when nobody writes ResourceSliceStatuses: from the settings as they changed."""

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.domain.inventory.state import settings_row
from gpuledger.events.settings import SettingsChanged
from gpuledger.tools.queries.slice_statuses import staleness, staleness_of
from support.dra import device, published
from support.events import RecordedFact, hour, numbered, outgoing
from support.ledgers import memory_ledger

ON, OFF, DISABLED = SettingsChanged(), SettingsChanged(dra_availability=False), SettingsChanged(enabled=False)
REDACTED = SettingsChanged(dra_availability=False, claim_references="Redacted")
GATE = "the feature gate DRAResourceAvailabilityVisibility is off"
MODULE = "the module gpu-control-plane is disabled"
WATCHER, AGENT = "/watchers/kube", "/nodes/n1/agent"

Change = tuple[float, SettingsChanged]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], None),
        ([(1, ON)], None),
        ([(1, OFF)], (1, GATE)),
        ([(1, DISABLED)], (1, MODULE)),
        ([(1, OFF), (2, ON)], None),
        ([(1, OFF), (2, ON), (3, OFF)], (3, GATE)),
        ([(1, ON), (2, OFF), (3, REDACTED)], (2, GATE)),
        ([(1, OFF), (2, DISABLED)], (1, MODULE)),
        ([(1, DISABLED), (2, OFF)], (1, GATE)),
        ([(2, OFF), (1, ON)], (2, GATE)),
        ([(2, ON), (1, OFF)], None),
        ([(1, OFF), (1, ON)], None),
        ([(1, ON), (1, OFF)], (1, GATE)),
    ],
)
def test_statuses_are_stale_since_the_first_change_after_which_nobody_wrote_them(
    changes: list[Change], expected: tuple[float, str] | None
) -> None:
    found = staleness_of([(hour(at), settings_row(data, hour(at))) for at, data in changes])
    assert found == (None if expected is None else (hour(expected[0]), expected[1]))


def test_staleness_is_one_clause() -> None:
    found = staleness_of([(hour(2), settings_row(OFF, hour(2)))])
    assert str(found) == f"stale since 2026-01-01T02:00:00Z, because {GATE}"


async def test_the_settings_of_the_module_are_read_from_the_log_as_every_fold_reads_them() -> None:
    """What an agent writes under the module's name counts no more than anywhere else, and repeats count once."""
    facts = [
        RecordedFact(WATCHER, MODULE_CONFIG, 1, ON),
        RecordedFact(WATCHER, "s1", 2, published(device("gpu-0"))),
        RecordedFact(WATCHER, MODULE_CONFIG, 3, OFF),
        RecordedFact(WATCHER, "other-module", 5, ON),
        RecordedFact(WATCHER, MODULE_CONFIG, 6, REDACTED),
        RecordedFact(AGENT, MODULE_CONFIG, 7, ON),
    ]
    async with memory_ledger() as ledger:
        assert await staleness(ledger) is None
        events = numbered(facts)
        await ledger.publish_many([outgoing(one) for one in events])
        assert await staleness(ledger) == (hour(3), GATE)
