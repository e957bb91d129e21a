"""The settings of a check, read from its environment in one place; what is invalid there ends it with exit code 2.

Units stand in the names: durations in seconds, bandwidths in GB/s (10^9 bytes).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from gpuledger.api.preflight import GANG_PATH, NotRun, Variable
from gpuledger.domain.preflight.setting_values import BANDWIDTH_MAX_GBPS, is_address, is_file_name, timeout_s
from gpuledger.events.health import Strategy
from gpuledger.preflight.errors import ConfigurationError

NCCL_TOPOLOGY: Final = "NCCL_TOPO_FILE"
"""NCCL's own variable: a pod that sets it brings its topology file."""

TERMINATION_LOG: Final = "/dev/termination-log"

DEFAULT_CHECK_TIMEOUT_S: Final = 300.0
DEFAULT_GANG_TIMEOUT_S: Final = 600.0
DEFAULT_REPORT_TIMEOUT_S: Final = 60.0
DEFAULT_LOOPBACK_GBPS: Final = 10.0
DEFAULT_ALLREDUCE_GBPS: Final = 5.0
DEFAULT_BANDWIDTH_GBPS: Final = 5.0
DEFAULT_DIAG_LEVEL: Final = 1
DIAG_LEVELS: Final = (1, 2)

_STRATEGIES: Final[Mapping[str, Strategy]] = {
    "": "execute-remediation",
    "EXECUTE_REMEDIATION": "execute-remediation",
    "STORE_ONLY": "store-only",
    "STORE_AND_ANALYSE": "store-and-analyse",
}
T = TypeVar("T")

_SOCKET: Final = "unix://"


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The pod that the check runs in; what Kubernetes has not given is empty."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    ip: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """Where results are reported: a socket, or an address with TLS and a token; exactly one of the two is not None."""

    socket: Path | None
    target: str | None = None
    authority: Path | None = None
    token: Path | None = None
    timeout_s: float = DEFAULT_REPORT_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class GangSettings:
    """Where the gang's ConfigMap is mounted, and how long its pods are waited for."""

    folder: Path = Path(GANG_PATH)
    timeout_s: float = DEFAULT_GANG_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class DiagSettings:
    """The level of DCGM's diagnostic, and the host engine's address."""

    level: int = DEFAULT_DIAG_LEVEL
    hostengine: str = ""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The bandwidths that checks demand, in GB/s."""

    loopback_gbps: float = DEFAULT_LOOPBACK_GBPS
    allreduce_gbps: float = DEFAULT_ALLREDUCE_GBPS
    bandwidth_gbps: float = DEFAULT_BANDWIDTH_GBPS


@dataclass(frozen=True, slots=True)
class TopologySettings:
    """NCCL's topology file: the pod's own, else the one of the node's instance type in `folder`."""

    own: str | None = None
    files: Mapping[str, str] | None = None
    folder: Path | None = None
    fallback: bool = True


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """All settings of a check."""

    pod: PodIdentity
    report: ReportSettings
    check_timeout_s: float
    strategy: Strategy
    not_run: NotRun
    gang: GangSettings
    diag: DiagSettings
    thresholds: Thresholds
    topology: TopologySettings


def read_check_settings(environ: Mapping[str, str]) -> CheckSettings:
    """The settings in an environment.

    Raises:
        ConfigurationError: a setting is missing or invalid.
    """
    return CheckSettings(
        read_pod(environ),
        read_report(environ),
        _duration(environ, Variable.CHECK_TIMEOUT, DEFAULT_CHECK_TIMEOUT_S),
        read_strategy(environ),
        read_not_run(environ),
        GangSettings(
            Path(environ.get(Variable.GANG_PATH) or GANG_PATH),
            _duration(environ, Variable.GANG_TIMEOUT, DEFAULT_GANG_TIMEOUT_S),
        ),
        DiagSettings(_level(environ), _address(environ, Variable.HOSTENGINE) or ""),
        Thresholds(
            _bandwidth(environ, Variable.LOOPBACK_THRESHOLD, DEFAULT_LOOPBACK_GBPS),
            _bandwidth(environ, Variable.ALLREDUCE_THRESHOLD, DEFAULT_ALLREDUCE_GBPS),
            _bandwidth(environ, Variable.BANDWIDTH_THRESHOLD, DEFAULT_BANDWIDTH_GBPS),
        ),
        _topology(environ),
    )


def read_pod(environ: Mapping[str, str]) -> PodIdentity:
    """The pod as Kubernetes' downward API names it."""
    names = (Variable.POD_NAMESPACE, Variable.POD_NAME, Variable.POD_UID, Variable.POD_IP, Variable.NODE_NAME)
    return PodIdentity(*(environ.get(name, "") for name in names))


def read_termination_log(environ: Mapping[str, str]) -> Path:
    """Where the result is written."""
    return Path(environ.get(Variable.TERMINATION_LOG) or TERMINATION_LOG)


def read_report(environ: Mapping[str, str]) -> ReportSettings:
    """Where results are reported; a socket has precedence.

    Raises:
        ConfigurationError: there is no valid place.
    """
    timeout_s = _duration(environ, Variable.REPORT_TIMEOUT, DEFAULT_REPORT_TIMEOUT_S)
    socket = environ.get(Variable.SOCKET, "")
    if socket:
        path = Path(socket.removeprefix(_SOCKET))
        if not path.is_absolute():
            raise ConfigurationError(
                Variable.SOCKET, f"{Variable.SOCKET} is {socket!r}; it is a path such as unix:///var/run/health.sock."
            )
        return ReportSettings(path, timeout_s=timeout_s)
    target = _address(environ, Variable.TARGET)
    if target is None:
        raise ConfigurationError(
            Variable.SOCKET,
            f"Nothing says where results are reported; set {Variable.SOCKET} to the agent's socket, or "
            f"{Variable.TARGET} to the health gateway's HOST:PORT.",
        )
    files = (_file(environ, Variable.TARGET_CA_FILE), _file(environ, Variable.TARGET_TOKEN_FILE))
    return ReportSettings(None, target, *files, timeout_s)


def read_strategy(environ: Mapping[str, str]) -> Strategy:
    """Whether a failure may change the cluster."""
    return _chosen(environ, Variable.STRATEGY, _STRATEGIES)


def read_not_run(environ: Mapping[str, str]) -> NotRun:
    """What follows where the check cannot be carried out."""
    return _chosen(environ, Variable.NOT_RUN, {"": NotRun.BLOCK, **{one.value: one for one in NotRun}})


def _chosen(environ: Mapping[str, str], name: Variable, choices: Mapping[str, T]) -> T:
    text = environ.get(name, "").strip()
    if text not in choices:
        raise ConfigurationError(name, f"{name} is {text!r}; it is one of {', '.join(filter(None, choices))}.")
    return choices[text]


def _duration(environ: Mapping[str, str], name: Variable, default_s: float) -> float:
    text = environ.get(name, "").strip()
    if not text:
        return default_s
    seconds = timeout_s(text)
    if seconds is None:
        raise ConfigurationError(name, f"{name} is {text!r}; it is a duration above 0 and up to 24h, such as 300s.")
    return seconds


def _bandwidth(environ: Mapping[str, str], name: Variable, default_gbps: float) -> float:
    text = environ.get(name, "").strip()
    if not text:
        return default_gbps
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= BANDWIDTH_MAX_GBPS:
        raise ConfigurationError(name, f"{name} is {text!r}; it is a bandwidth in GB/s, such as 10.0.")
    return value


def _level(environ: Mapping[str, str]) -> int:
    choices = {"": DEFAULT_DIAG_LEVEL, **{str(level): level for level in DIAG_LEVELS}}
    return _chosen(environ, Variable.DIAG_LEVEL, choices)


def _address(environ: Mapping[str, str], name: Variable) -> str | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not is_address(text):
        raise ConfigurationError(name, f"{name} is {text!r}; it is HOST:PORT.")
    return text


def _file(environ: Mapping[str, str], name: Variable) -> Path | None:
    text = environ.get(name, "")
    if text and not Path(text).is_file():
        raise ConfigurationError(name, f"{name} is {text!r}, which is no file; mount it, or leave the variable out.")
    return Path(text) if text else None


def _topology(environ: Mapping[str, str]) -> TopologySettings:
    folder = environ.get(Variable.TOPOLOGY_FOLDER)
    flags = {"": True, "true": True, "false": False}
    return TopologySettings(
        environ.get(NCCL_TOPOLOGY) or None,
        _json_texts(environ, Variable.TOPOLOGY_MAPPING),
        Path(folder) if folder else None,
        _chosen(environ, Variable.TOPOLOGY_FALLBACK, flags),
    )


def _json_texts(environ: Mapping[str, str], name: Variable) -> Mapping[str, str]:
    """An object of texts, such as files by instance type; a file is a name without folders."""
    text = environ.get(name, "").strip()
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(map(is_file_name, found.values())):
        raise ConfigurationError(
            name, f"{name} is no JSON object of file names by instance type, such as " + '{"p5.48xlarge": "p5.xml"}.'
        )
    return found
