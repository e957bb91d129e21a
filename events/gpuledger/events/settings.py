"""Settings that decisions depend on, recorded so that a replay uses those that were in force."""

from typing import Annotated, Final, Literal

from pydantic import Field

from gpuledger.events.payload import BIGINT_MAX, Count, Name, Payload, Text
from gpuledger.events.publishing import BY_WATCHERS
from gpuledger.events.reach import REQUIREMENTS_MAX, NodeRequirement
from gpuledger.events.registry import registry

SELECTOR_LABELS_MAX = 256
HEARTBEATS_MAX = 10
"""The most heartbeats in a row that a setting may require; an agent reports as many."""

SLICES_PER_UNIT_MAX = 64
NOT_IN_FORCE_MAX: Final = 32
"""How many settings that are not in force an event names."""

ClaimReferences = Literal["Full", "Redacted"]
REDACTED: Final[ClaimReferences] = "Redacted"
DEFAULT_CLAIM_REFERENCES: Final = REDACTED
"""Where nobody has set any: everybody who may read statuses sees counts. Events without the field mean Full."""

Heartbeats = Annotated[int, Field(ge=1, le=HEARTBEATS_MAX)]


class SettingNotInForce(Payload):
    """A setting of a ModuleConfig that has no effect: its field, why, and what is in force instead, if anything is."""

    field: Name
    problem: Text
    in_force: Text = ""


@registry.event("settings", "changed", BY_WATCHERS)
class SettingsChanged(Payload):
    """The module's settings from now on; fields that its ModuleConfig omits have these defaults.

    `high_availability` None follows the cluster: two replicas if the control plane has several. `dra_availability` is
    the feature gate `DRAResourceAvailabilityVisibility`. gpuledger neither runs nor waits for a component that is not
    enabled. With the mode Selector a device needs all of `approval_selector` and `approval_requirements`, and without
    any no device is selected. `heartbeats` is how many in a row make monitoring stable, `recovery_heartbeats` how many
    a device needs after a fault. `generation` is the ModuleConfig's metadata.generation that was read, and
    `not_in_force` is what it sets in vain; without a generation nothing is recorded about either.
    """

    enabled: bool = True
    managed_label_key: Name = "gpu.deckhouse.io/enabled"
    enabled_by_default: bool = True
    approval_mode: Literal["Manual", "Automatic", "Selector"] = "Automatic"
    approval_selector: Annotated[dict[Name, Text], Field(max_length=SELECTOR_LABELS_MAX)] = {}
    approval_requirements: Annotated[tuple[NodeRequirement, ...], Field(max_length=REQUIREMENTS_MAX)] = ()
    scheduling_strategy: Name = "Spread"
    topology_key: Name = "topology.kubernetes.io/zone"
    resync_period_s: Annotated[int, Field(ge=1, le=BIGINT_MAX)] = 30
    high_availability: bool | None = None
    claim_references: ClaimReferences = "Full"
    dra_availability: bool = True
    validator_enabled: bool = True
    gfd_enabled: bool = True
    dcgm_enabled: bool = True
    dcgm_exporter_enabled: bool = True
    heartbeats: Heartbeats = 3
    recovery_heartbeats: Heartbeats = 5
    validation_timeout_s: Annotated[int, Field(ge=1, le=BIGINT_MAX)] = 300
    max_slices_per_device: Annotated[int, Field(ge=1, le=SLICES_PER_UNIT_MAX)] = 8
    generation: Count | None = None
    not_in_force: Annotated[tuple[SettingNotInForce, ...], Field(max_length=NOT_IN_FORCE_MAX)] = ()
