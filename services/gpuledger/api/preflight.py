"""Names of preflight checks as pods, ConfigMaps and processes have them. Pure.

What NVSentinel names too is named as it does, so that checks of its shape run as they are.
"""

from enum import IntEnum, StrEnum
from hashlib import blake2b
from typing import Final


class CheckName(StrEnum):
    """The checks that gpuledger itself brings; a third-party one has any other name."""

    DCGM_DIAG = "dcgm-diag"
    NCCL_LOOPBACK = "nccl-loopback"
    NCCL_ALLREDUCE = "nccl-allreduce"
    BANDWIDTH = "bandwidth"


NCCL_CHECKS: Final = frozenset({CheckName.NCCL_LOOPBACK, CheckName.NCCL_ALLREDUCE})
"""Checks that need the pod's network devices and NCCL variables."""

GANG_CHECKS: Final = frozenset({CheckName.NCCL_ALLREDUCE})
"""Checks that all pods of a gang go through together; a pod without a gang skips them."""


class ExitCode(IntEnum):
    """How the process of a check ends. A failure that is only to be stored ends with `PASSED` as well."""

    PASSED = 0
    FAILED = 1
    CONFIGURATION = 2
    GANG_TIMEOUT = 3
    NOT_REPORTED = 4
    """The check could not be carried out or its result not be reported, and says so; it blames no hardware."""


MONITOR: Final = "gpuledger-preflight"
"""What checks call themselves in health reports (`agent` on the wire)."""

CHECK_PREFIX: Final = "preflight-"
"""Before a check's name: its init container, and its `checkName` in health reports."""

LABEL_PREFLIGHT: Final = "gpuledger.io/preflight"
"""On pods with injected checks: `true`. Only the webhook sets it; what a pod brings along is removed."""

ANNOTATION_INJECTED: Final = "gpuledger.io/preflight-injected"
"""On pods with injected checks: their names in order, separated by commas."""

ANNOTATION_GANG: Final = "gpuledger.io/preflight-gang"
"""On pods with injected checks that belong to a gang: its id, as the webhook found it."""

ANNOTATION_GANG_SOURCE: Final = "gpuledger.io/preflight-gang-source"
"""On the same pods: how it was found, such as `scheduling-group/NAME`; who coordinates looks its size up there."""

ANNOTATION_GANG_SIZE: Final = "gpuledger.io/preflight-gang-size"
"""On the same pods, where they say themselves how many pods their gang has: that number."""

ANNOTATION_AUTHORITY: Final = "gpuledger.io/preflight-authority"
"""On the same pods, where checks report over TCP: the authority to trust, as PEM, which the pod mounts as a file."""

ANNOTATION_CHECKS: Final = "gpuledger.io/preflight-checks"
"""On pods, by their owners: the checks to run of those that are configured, separated by commas; empty: none."""

UPSTREAM_ANNOTATION_CHECKS: Final = "nvsentinel.nvidia.com/preflight-checks"
"""The same as NVSentinel calls it; it counts where ours is absent."""

CONFIG_MAP_PREFIX: Final = "preflight-"
CONFIG_MAP_NAME_MAX: Final = 63
CONFIG_MAP_HASH_BYTES: Final = 4


class GangKey(StrEnum):
    """The keys of a gang's ConfigMap, which are the names of files under `GANG_PATH`. A line of `peers` is `pod:ip`."""

    EXPECTED_COUNT = "expected_count"
    """How many pods form the gang: those of it that have not passed yet."""
    PASSED_COUNT = "passed_count"
    """How many have, and go through no checks any more; absent: none. NVSentinel's checks do not read it."""
    PEERS = "peers"
    MASTER_ADDRESS = "master_addr"
    MASTER_PORT = "master_port"
    GANG_ID = "gang_id"


MASTER_PORT: Final = 29500
GANG_PATH: Final = "/etc/preflight"
SOCKET_FOLDER: Final = "/var/run/gpuledger"
"""Where the container of a check has the folder of the agent's socket, which holds nothing else."""

SOCKET_NAME: Final = "health.sock"
TOKEN_PATH: Final = "/var/run/secrets/gpuledger/token"  # noqa: S105 - a path
AUTHORITY_PATH: Final = "/var/run/secrets/gpuledger/ca.crt"


class Variable(StrEnum):
    """The environment of a check. Durations are as Go writes them (`300s`), bandwidths in GB/s (10^9 bytes)."""

    POD_NAME = "MY_POD_NAME"
    POD_NAMESPACE = "MY_POD_NAMESPACE"
    POD_UID = "MY_POD_UID"
    POD_IP = "MY_POD_IP"
    NODE_NAME = "NODE_NAME"
    SOCKET = "PLATFORM_CONNECTOR_SOCKET"
    TARGET = "HEALTH_PUBLISH_TARGET"
    """`HOST:PORT` of the health gateway, where there is no socket; this and the next two as monitors of NVSentinel."""
    TARGET_CA_FILE = "HEALTH_PUBLISH_TLS_CA_FILE"
    TARGET_TOKEN_FILE = "HEALTH_PUBLISH_TOKEN_PATH"  # noqa: S105 - the name of a variable
    STRATEGY = "PROCESSING_STRATEGY"
    CHECK_TIMEOUT = "CHECK_TIMEOUT"
    GANG_TIMEOUT = "GANG_TIMEOUT"
    GANG_PATH = "GANG_CONFIG_DIR"
    DIAG_LEVEL = "DCGM_DIAG_LEVEL"
    HOSTENGINE = "DCGM_HOSTENGINE_ADDR"
    LOOPBACK_THRESHOLD = "NCCL_LOOPBACK_THRESHOLD_GBPS"
    ALLREDUCE_THRESHOLD = "NCCL_ALLREDUCE_THRESHOLD_GBPS"
    BANDWIDTH_THRESHOLD = "BANDWIDTH_THRESHOLD_GBPS"
    TOPOLOGY_MAPPING = "NCCL_TOPOLOGY_MAPPING"
    """A JSON object with the topology file by instance type."""
    TOPOLOGY_FOLDER = "NCCL_TOPOLOGY_DIR"
    TOPOLOGY_FALLBACK = "NCCL_TOPOLOGY_FALLBACK"
    """`true`: NCCL finds the topology itself where no file is mapped; `false`: that is an error of configuration."""
    NOT_RUN = "CHECK_NOT_RUN"
    """What follows where a check cannot be carried out, for want of a host engine or a program: `NotRun`."""
    REPORT_TIMEOUT = "REPORT_TIMEOUT"
    """For how long a check tries to report its result."""
    TERMINATION_LOG = "TERMINATION_LOG_PATH"
    """Where the result is written; the default is Kubernetes' own `terminationMessagePath`."""


class NotRun(StrEnum):
    """What a check that could not be carried out makes of its pod. One that ran and cannot report always blocks it.

    `BLOCK` ends with `ExitCode.NOT_REPORTED`, as the command does by default; `CONTINUE`, as injected containers have
    it, ends with 0 and leaves the outcome `not-reported` in the result and its report.
    """

    BLOCK = "block"
    CONTINUE = "continue"


class Detail(StrEnum):
    """The keys of `metadata` in the health report of a check. Every value is text; those that do not apply are absent.

    A report names the cards of its check (`entityType` GPU_UUID). One of a check that says nothing about hardware, with
    an outcome of `NEUTRAL_OUTCOMES`, names none, is stored only, and is healthy with the outcome as its one error code:
    so it neither begins nor ends a fault. The first event of a request has all of them; further ones, about other cards
    of the same result, only name the pod.
    """

    POD_NAMESPACE = "pod_namespace"
    POD_NAME = "pod_name"
    POD_UID = "pod_uid"
    OUTCOME = "outcome"
    """`events.preflight.CheckOutcome`."""
    DURATION_S = "duration_s"
    """A decimal number of seconds, as every `_s`; bandwidths are decimal GB/s (10^9 bytes)."""
    GANG = "gang"
    GANG_SIZE = "gang_size"
    """How many pods it expects, a whole number."""
    RANK = "rank"
    """The pod's place in its gang, from 0."""
    GANG_WAIT_S = "gang_wait_s"
    BANDWIDTH = "bandwidth_gbps"
    THRESHOLD = "threshold_gbps"
    ERROR = "error"
    """Of an error of configuration: the variable that is invalid."""
    TOPOLOGY = "topology_file"


NEUTRAL_OUTCOMES: Final = frozenset({"skipped", "not-reported", "config-error"})
"""Outcomes of `events.preflight.CheckOutcome` that say nothing about hardware."""


def gang_config_map(gang: str) -> str:
    """The name of a gang's ConfigMap: at most 63 characters, with eight of a digest where the id is cut."""
    name = f"{CONFIG_MAP_PREFIX}{gang}"
    if len(name) <= CONFIG_MAP_NAME_MAX:
        return name
    digest = blake2b(gang.encode(), digest_size=CONFIG_MAP_HASH_BYTES).hexdigest()
    return f"{name[: CONFIG_MAP_NAME_MAX - 1 - len(digest)].rstrip('-.')}-{digest}"


def check_container(check: str) -> str:
    """The name of a check's init container, and of the check in health reports."""
    return f"{CHECK_PREFIX}{check}"
