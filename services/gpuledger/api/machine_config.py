"""Names and limits of machine configuration (seed 004): annotations, states, conditions, defaults, refused paths. Pure.

The annotations are the contract between the service `rollout` and the agent of machine configuration on each node: the
service writes what is desired, the agent what it observes.
"""

from enum import StrEnum
from typing import Final

from gpuledger.api.kinds import MACHINE_CONFIG_GROUP

SYSTEM_NAMESPACE: Final = "machine-config-system"
"""The namespace of the agent in the seed; no drain evicts its pods."""

LABEL_POOL: Final = f"{MACHINE_CONFIG_GROUP}/pool"
"""On RenderedMachineConfigs: the pool that it was rendered for. The annotation of nodes has the same name."""

ANNOTATION_POOL: Final = LABEL_POOL
ANNOTATION_DESIRED: Final = f"{MACHINE_CONFIG_GROUP}/desired-revision"
ANNOTATION_DESIRED_SET_AT: Final = f"{MACHINE_CONFIG_GROUP}/desired-revision-set-at"
ANNOTATION_CORDONED: Final = f"{MACHINE_CONFIG_GROUP}/cordoned"
ANNOTATION_DRAIN_STARTED_AT: Final = f"{MACHINE_CONFIG_GROUP}/drain-started-at"
ANNOTATION_DRAIN_RETRY_COUNT: Final = f"{MACHINE_CONFIG_GROUP}/drain-retry-count"
DESIRED_ANNOTATIONS: Final = (
    ANNOTATION_POOL,
    ANNOTATION_DESIRED,
    ANNOTATION_DESIRED_SET_AT,
    ANNOTATION_CORDONED,
    ANNOTATION_DRAIN_STARTED_AT,
    ANNOTATION_DRAIN_RETRY_COUNT,
)
"""On Nodes: what the service writes, and nobody else."""

ANNOTATION_CURRENT: Final = f"{MACHINE_CONFIG_GROUP}/current-revision"
ANNOTATION_STATE: Final = f"{MACHINE_CONFIG_GROUP}/agent-state"
ANNOTATION_LAST_ERROR: Final = f"{MACHINE_CONFIG_GROUP}/last-error"
ANNOTATION_REBOOT_PENDING: Final = f"{MACHINE_CONFIG_GROUP}/reboot-pending"
OBSERVED_ANNOTATIONS: Final = (
    ANNOTATION_CURRENT,
    ANNOTATION_STATE,
    ANNOTATION_LAST_ERROR,
    ANNOTATION_REBOOT_PENDING,
)
"""On Nodes: what the node's agent writes, and nobody else."""

ANNOTATION_PINNED: Final = f"{MACHINE_CONFIG_GROUP}/pinned-revision"
"""On MachineConfigPools: the RenderedMachineConfig to roll out instead of the newest one, until it is removed."""

ZONE_LABEL: Final = "topology.kubernetes.io/zone"


class AgentState(StrEnum):
    """What the agent of a node does, as its annotation says."""

    IDLE = "idle"
    APPLYING = "applying"
    REBOOTING = "rebooting"
    DONE = "done"
    ERROR = "error"


class RebootStrategy(StrEnum):
    """Whether a pool's nodes reboot where a configuration requires it."""

    NEVER = "Never"
    IF_REQUIRED = "IfRequired"


class ConfigPoolConditionType(StrEnum):
    """Condition types of a MachineConfigPool, in the order in which its status lists them."""

    READY = "Ready"
    UPDATING = "Updating"
    DRAINING = "Draining"
    DEGRADED = "Degraded"
    POOL_OVERLAP = "PoolOverlap"
    DRAIN_STUCK = "DrainStuck"


DEBOUNCE_DEFAULT_S: Final = 30
DEBOUNCE_MAX_S: Final = 3600
APPLY_TIMEOUT_DEFAULT_S: Final = 600
APPLY_TIMEOUT_MIN_S: Final = 60
APPLY_TIMEOUT_MAX_S: Final = 3600
MAX_UNAVAILABLE_DEFAULT: Final = 1
DRAIN_TIMEOUT_DEFAULT_S: Final = 3600
DRAIN_TIMEOUT_MIN_S: Final = 60
DRAIN_TIMEOUT_MAX_S: Final = 86_400
DRAIN_RETRY_MIN_S: Final = 30
DRAIN_RETRIES_PER_TIMEOUT: Final = 12
DRAIN_RETRY_GIVEN_MIN_S: Final = 10
DRAIN_RETRY_GIVEN_MAX_S: Final = 1800
REBOOT_INTERVAL_DEFAULT_S: Final = 1800
HISTORY_DEFAULT: Final = 5

POOL_NAME_LENGTH_MAX: Final = 63
"""A pool's name is the value of a label of its RenderedMachineConfigs."""

REVISION_LENGTH: Final = 10
"""How many hexadecimal digits of the hash a revision has."""

REFUSED_PATHS: Final = (
    "/etc/kubernetes",
    "/var/lib/kubelet",
    "/var/lib/etcd",
    "/var/lib/containerd",
    "/var/lib/gpuledger",
    "/run/containerd",
    "/usr/bin",
    "/usr/sbin",
    "/bin",
    "/sbin",
    "/boot",
    "/proc",
    "/sys",
    "/dev",
)
"""Folders in which no configuration has a file: a mistake there takes a node away from its cluster or its boot."""

REFUSED_UNITS: Final = ("kubelet", "containerd", "crio")
"""Units, without their suffix, that no configuration names: the node's pods need them."""

POWER_UNITS: Final = (
    "reboot", "poweroff", "halt", "kexec", "soft-reboot", "exit", "shutdown", "ctrl-alt-del", "emergency", "rescue",
    "sleep", "suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate", "runlevel0", "runlevel1", "runlevel6",
    "systemd-reboot", "systemd-poweroff", "systemd-halt", "systemd-kexec", "systemd-soft-reboot", "systemd-suspend",
    "systemd-hibernate", "systemd-hybrid-sleep", "systemd-suspend-then-hibernate",
)  # fmt: skip
"""Units, without their suffix, that no configuration starts: the machine would go down again and again, since a start
that it does not outlive is never done. They may be masked."""


def drain_retry_s(drain_timeout_s: int, given: int | None) -> int:
    """The seconds between two attempts at a drain: as given, else a twelfth of the time-out, and 30 at least."""
    return given or max(DRAIN_RETRY_MIN_S, drain_timeout_s // DRAIN_RETRIES_PER_TIMEOUT)


def rendered_name(pool: str, config_hash: str, collision: int = 0) -> str:
    """The name of a RenderedMachineConfig, as the seed gives it; the n-th collision of revisions adds `-<n>`."""
    name = f"rendered-{pool}-{config_hash[:REVISION_LENGTH]}"
    return f"{name}-{collision}" if collision else name
