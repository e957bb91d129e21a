"""Machine configuration of nodes: what people write, what nodes are to have, and how far each node is (seed 004).

MachineConfigs are merged per MachineConfigPool into a rendered configuration, which is rolled out node by node. Events
have contents of files compressed (`pack_content`), because a configuration stays in the ledger as long as its history.
"""

import base64
import zlib
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from gpuledger.events.node import CONDITIONS_MAX, Condition, Labels
from gpuledger.events.payload import Count, Name, Payload, Text
from gpuledger.events.pool import LabelSelector
from gpuledger.events.publishing import BY_WATCHERS, DropClass, SourceKind, by_agents, by_service
from gpuledger.events.registry import registry

CONTENT_BYTES_MAX = 1024 * 1024
"""The size of one file, in UTF-8."""

PACKED_LENGTH_MAX = 1024 * 1024
FILES_MAX = 1024
UNITS_MAX = 256
SOURCES_MAX = 1024
PRIORITY_MAX = 99_999
PRIORITY_DEFAULT = 50
MODE_MAX = 0o7777
MODE_DEFAULT = 0o644
OWNER_DEFAULT = "root:root"
PATH_LENGTH_MAX = 4096
CHANGES_MAX = 64
"""How many files and units a report of a node's agent names, the first ones in the order in which it works."""

HASH_PATTERN = r"^[0-9a-f]{64}$"

Path = Annotated[str, StringConstraints(min_length=1, max_length=PATH_LENGTH_MAX)]
Packed = Annotated[str, StringConstraints(max_length=PACKED_LENGTH_MAX)]
Hash = Annotated[str, StringConstraints(pattern=HASH_PATTERN)]
UnitState = Literal["started", "stopped", "restarted", "reloaded"]


def pack_content(content: str) -> str:
    """A file's content as events have it: zlib, in base64. Bytes may differ between builds of zlib, contents do not."""
    return base64.b64encode(zlib.compress(content.encode(), 9)).decode()


def unpack_content(packed: str) -> str:
    """The content of a file.

    Raises:
        ValueError: it is none, or larger than a file may be.
    """
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(base64.b64decode(packed, validate=True), CONTENT_BYTES_MAX + 1)
    except zlib.error as error:
        raise ValueError(f"the content is not compressed as it has to be: {error}") from error
    if len(content) > CONTENT_BYTES_MAX or not unpacking.eof:
        raise ValueError(f"the content is cut, or larger than {CONTENT_BYTES_MAX} bytes")
    return content.decode()


class ConfigFile(Payload):
    """A file of a configuration. `content` is packed; `hash` is the SHA-256 of the content itself, in UTF-8."""

    path: Path
    content: Packed = ""
    hash: Hash
    mode: Annotated[int, Field(ge=0, le=MODE_MAX)] = MODE_DEFAULT
    owner: Name = OWNER_DEFAULT
    state: Literal["present", "absent"] = "present"


class ConfigUnit(Payload):
    """A systemd unit of a configuration; what is None is left as it is."""

    name: Name
    enabled: bool | None = None
    state: UnitState | None = None
    mask: bool = False


@registry.event("machineconfig", "defined", BY_WATCHERS, introduced=True)
class MachineConfigDefined(Payload):
    """A MachineConfig and its whole spec. Replaces the previous definition.

    `problems` say what of it is refused or not understood; pools that select it render nothing until that is mended.
    """

    uid: Name
    generation: Count = 0
    labels: Labels = {}
    priority: Annotated[int, Field(ge=0, le=PRIORITY_MAX)] = PRIORITY_DEFAULT
    files: Annotated[tuple[ConfigFile, ...], Field(max_length=FILES_MAX)] = ()
    units: Annotated[tuple[ConfigUnit, ...], Field(max_length=UNITS_MAX)] = ()
    reboot_required: bool = False
    reboot_reason: Text = ""
    problems: Annotated[tuple[Text, ...], Field(max_length=FILES_MAX)] = ()


@registry.event("machineconfig", "gone", BY_WATCHERS, introduced=True)
class MachineConfigGone(Payload):
    """The MachineConfig's object is gone."""

    uid: Name | None = None


@registry.event("machineconfigpool", "defined", BY_WATCHERS, introduced=True)
class MachineConfigPoolDefined(Payload):
    """A MachineConfigPool and its whole spec. Replaces the previous definition.

    `max_unavailable` is a number (`2`) or a percentage (`25%`). `pinned_revision` is the RenderedMachineConfig that is
    rolled out instead of the newest. `prefers_idle` updates nodes first that hold no devices. `problems` as in
    `MachineConfigDefined`: with one, the pool selects no node.
    """

    uid: Name
    generation: Count = 0
    node_selector: LabelSelector | None = None
    config_selector: LabelSelector | None = None
    debounce_s: Count = 30
    apply_timeout_s: Count = 600
    max_unavailable: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}%?$")] = "1"
    drain_timeout_s: Count = 3600
    drain_retry_s: Count | None = None
    reboot_strategy: Literal["Never", "IfRequired"] = "Never"
    reboot_min_interval_s: Count = 1800
    history_limit: Count = 5
    paused: bool = False
    prefers_idle: bool = False
    pinned_revision: Name | None = None
    problems: Annotated[tuple[Text, ...], Field(max_length=64)] = ()


@registry.event("machineconfigpool", "gone", BY_WATCHERS, introduced=True)
class MachineConfigPoolGone(Payload):
    """The MachineConfigPool's object is gone."""

    uid: Name | None = None


@registry.event("node", "machine-observed", BY_WATCHERS, introduced=True)
class NodeMachineObserved(Payload):
    """The Node as the rollout of configurations needs it. Replaces the previous event.

    `created` is when its object was made, `unschedulable` whether it is cordoned, by whomever. The rest are the
    annotations that its agent of machine configuration writes; None where it has none.
    """

    uid: Name
    created: AwareDatetime
    unschedulable: bool = False
    current_revision: Name | None = None
    agent_state: Name | None = None
    last_error: Text = ""
    reboot_pending: bool = False


@registry.event("node", "machine-gone", BY_WATCHERS, introduced=True)
class NodeMachineGone(Payload):
    """The Node object was deleted."""

    uid: Name | None = None


class ConfigChange(Payload):
    """What the agent did about a file or a unit. `outcome` is `unchanged`, `changed`, `failed` or `not-applied`."""

    subject: Path
    action: Name
    outcome: Literal["unchanged", "changed", "failed", "not-applied"]
    message: Text = ""


@registry.event("node", "config-reported", by_agents(DropClass.ONCE), introduced=True)
class NodeConfigReported(Payload):
    """The agent of machine configuration has come to another state with a revision.

    `revision` is what it works on, `current_revision` what it applied last. `desired_set_at` is when the order was
    given that it works on, as the Node's annotation says; None: it does not say. `changes` are the first files and
    units in the order of its work, `change_count` is how many there are. `boot` identifies the boot of the machine's
    kernel.
    """

    state: Literal["idle", "applying", "rebooting", "done", "error"]
    revision: Name | None = None
    current_revision: Name | None = None
    desired_set_at: AwareDatetime | None = None
    error: Text = ""
    reboot_pending: bool = False
    changes: Annotated[tuple[ConfigChange, ...], Field(max_length=CHANGES_MAX)] = ()
    change_count: Count = 0
    boot: Name | None = None


_BY_ROLLOUT = by_service(SourceKind.ROLLOUT)


class ConfigSource(Payload):
    """A MachineConfig that went into a rendered configuration."""

    name: Name
    priority: Annotated[int, Field(ge=0, le=PRIORITY_MAX)]


@registry.event("machineconfigpool", "rendered", _BY_ROLLOUT, introduced=True)
class MachineConfigRendered(Payload):
    """What the pool's nodes are to have, merged from its MachineConfigs, under the name of a RenderedMachineConfig.

    It never changes; `config_hash` is over its files, its units and whether it requires a reboot.
    """

    name: Name
    revision: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{10}$")]
    config_hash: Hash
    files: Annotated[tuple[ConfigFile, ...], Field(max_length=FILES_MAX)] = ()
    units: Annotated[tuple[ConfigUnit, ...], Field(max_length=UNITS_MAX)] = ()
    reboot_required: bool = False
    sources: Annotated[tuple[ConfigSource, ...], Field(max_length=SOURCES_MAX)] = ()


@registry.event("machineconfigpool", "rendered-withdrawn", _BY_ROLLOUT, introduced=True)
class MachineConfigRenderedWithdrawn(Payload):
    """A rendered configuration that no node has or is to have goes, by the pool's history limit or with the pool."""

    name: Name


@registry.event("machineconfigpool", "changed", _BY_ROLLOUT, introduced=True)
class MachineConfigPoolChanged(Payload):
    """The state of the pool from now on: its revisions, how many nodes are how far, and all of its conditions.

    `current_revision` is what all nodes had last, `last_successful_revision` the last one that all nodes took without
    an error. `unavailable` and `max_unavailable` are numbers of nodes.
    """

    target_revision: Name | None = None
    current_revision: Name | None = None
    last_successful_revision: Name | None = None
    machine_count: Count = 0
    ready_count: Count = 0
    updated_count: Count = 0
    updating_count: Count = 0
    degraded_count: Count = 0
    cordoned_count: Count = 0
    draining_count: Count = 0
    pending_reboot_count: Count = 0
    unavailable: Count = 0
    max_unavailable: Count = 1
    observed_generation: Count = 0
    conditions: tuple[Condition, ...] = Field(default=(), max_length=CONDITIONS_MAX)


@registry.event("machineconfigpool", "withdrawn", _BY_ROLLOUT, introduced=True)
class MachineConfigPoolWithdrawn(Payload):
    """The pool is gone, and its state with it."""


NodeConfigPhase = Literal["Idle", "Draining", "Applying", "Failed"]


@registry.event("node", "config-changed", _BY_ROLLOUT, introduced=True)
class NodeConfigChanged(Payload):
    """What the node is to have, and how far its update is. Replaces the previous event; without `pool`, nobody's.

    `cordoned` says that the rollout has it set aside. The node's annotations show all but the phase and its reason.
    """

    uid: Name
    pool: Name | None = None
    desired_revision: Name | None = None
    desired_set_at: AwareDatetime | None = None
    cordoned: bool = False
    drain_started_at: AwareDatetime | None = None
    drain_retries: Count = 0
    phase: NodeConfigPhase = "Idle"
    reason: Name | None = None
    message: Text = ""


@registry.event("node", "config-drain-failed", _BY_ROLLOUT, introduced=True)
class NodeConfigDrainFailed(Payload):
    """The drain for an update has not finished within a retry interval; it goes on. `attempt` counts from 1.

    With `is_stuck` it has taken longer than the pool's time-out as well.
    """

    pool: Name
    attempt: Count
    left: Count = 0
    message: Text = ""
    is_stuck: bool = False


ConfigWait = Literal["Debounce", "DrainRetry", "DrainTimeout", "ApplyTimeout", "Release"]


@registry.event("machineconfigpool", "wait-ended", _BY_ROLLOUT, introduced=True)
class MachineConfigWaitEnded(Payload):
    """A wait about the pool, or about one of its nodes, is over: what began at `since` has lasted long enough.

    `Debounce`: no input of the rendering changed meanwhile. `DrainRetry`, `DrainTimeout` and `ApplyTimeout` are about
    a node that has not come further, `Release` about one that was released and has not been given back.
    """

    wait: ConfigWait
    node: Name | None = None
    since: AwareDatetime


@registry.event("rollout", "controller-placed", _BY_ROLLOUT, introduced=True)
class RolloutControllerPlaced(Payload):
    """The service `rollout` runs on this node from now on, which it neither cordons nor drains; None: on no node.

    The event's subject is `controller`, which is no pool.
    """

    node: Name | None = None
