"""Settings that decisions depend on, recorded so that a replay sees what was in force."""

from typing import Annotated, Literal

from pydantic import Field

from gpuledger.events.payload import BIGINT_MAX, Name, Payload, Text
from gpuledger.events.registry import registry

SELECTOR_LABELS_MAX = 256


@registry.event("settings", "changed", publisher="watchers")
class SettingsChanged(Payload):
    """The module's settings from now on; what its ModuleConfig leaves out has the default that stands here.

    `high_availability` None follows the cluster: two replicas where the control plane has several. `dra_availability`
    is the feature gate `DRAResourceAvailabilityVisibility`.
    """

    enabled: bool = True
    managed_label_key: Name = "gpu.deckhouse.io/enabled"
    enabled_by_default: bool = True
    approval_mode: Literal["Manual", "Automatic", "Selector"] = "Automatic"
    approval_selector: Annotated[dict[Name, Text], Field(max_length=SELECTOR_LABELS_MAX)] = {}
    scheduling_strategy: Name = "Spread"
    topology_key: Name = "topology.kubernetes.io/zone"
    resync_period_s: Annotated[int, Field(ge=1, le=BIGINT_MAX)] = 30
    high_availability: bool | None = None
    claim_references: Literal["Full", "Redacted"] = "Full"
    dra_availability: bool = True
