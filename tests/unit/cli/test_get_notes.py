"""What `gpuledger get` adds about Kubernetes to the ledger's present rows of slices and their pools."""

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.cli.get.availability import AvailabilityQuery
from gpuledger.cli.get.availability_nouns import CLAIMS, POOLS, SLICES, AvailabilityNoun
from gpuledger.events.settings import SettingsChanged
from gpuledger.tools.queries.backend import Backend
from support.events import RecordedFact, numbered, outgoing
from support.ledgers import memory_ledger

NOTE = (
    "ResourceSliceStatuses in Kubernetes are stale since 2026-01-01T02:00:00Z, because the feature gate "
    "DRAResourceAvailabilityVisibility is off; these rows come from the ledger."
)


@pytest.mark.parametrize(
    ("noun", "is_open", "note"),
    [(SLICES, False, NOTE), (POOLS, False, NOTE), (CLAIMS, False, None), (SLICES, True, None), (POOLS, True, None)],
)
async def test_while_the_feature_gate_is_closed_readers_learn_that_kubernetes_is_stale(
    noun: AvailabilityNoun, is_open: bool, note: str | None
) -> None:
    settings = RecordedFact("/watchers/kube", MODULE_CONFIG, 2, SettingsChanged(dra_availability=is_open))
    async with memory_ledger() as ledger:
        await ledger.publish_many([outgoing(event) for event in numbered([settings])])
        backend = Backend(ledger, "", "", None)  # type: ignore[arg-type]
        assert await AvailabilityQuery(noun, (), None).note(backend) == note
