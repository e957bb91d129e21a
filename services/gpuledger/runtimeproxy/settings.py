"""The settings of the runtime proxy, read from its environment; options of the command line become variables of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuledger.api.sharing import SharingNames
from gpuledger.runtime.settings import DEFAULT_METRICS_LISTEN, METRICS_LISTEN, SettingsError
from gpuledger.runtime.sharing_settings import read_sharing_names
from gpuledger.runtimeproxy.injection import DeviceNaming

LISTEN: Final = "GPULEDGER_RUNTIME_PROXY_LISTEN"
RUNTIME: Final = "GPULEDGER_RUNTIME_ENDPOINT"
FOLDER: Final = "GPULEDGER_RUNTIME_PROXY_DIR"
DRAIN_S: Final = "GPULEDGER_RUNTIME_PROXY_DRAIN_S"
ALLOCATE: Final = "GPULEDGER_ALLOCATE"
CDI_KIND: Final = "GPULEDGER_CDI_KIND"
"""The last two are those of the node's agent."""

SCHEME: Final = "unix://"
DEFAULT_LISTEN: Final = "unix:///run/gpuledger/runtime.sock"
DEFAULT_RUNTIME: Final = "unix:///run/containerd/containerd.sock"
DEFAULT_FOLDER: Final = "/var/lib/gpuledger/runtime-proxy"
DEFAULT_DRAIN_S: Final = 30.0
DRAIN_MAX_S: Final = 3600.0
DEFAULT_CDI_KIND: Final = "nvidia.com/gpu"
STRATEGIES: Final = ("env", "cdi", "both")

PATH_BYTES_MAX: Final = 107
"""What Linux takes as the path of a socket."""


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """All settings of a runtime proxy."""

    listen: Path
    runtime: Path
    folder: Path
    drain_max_s: float
    naming: DeviceNaming
    names: SharingNames
    metrics: str


def read_proxy_settings(environ: Mapping[str, str]) -> ProxySettings:
    """The settings in an environment.

    Raises:
        SettingsError: a setting is invalid.
    """
    listen = _socket(environ, LISTEN, DEFAULT_LISTEN)
    runtime = _socket(environ, RUNTIME, DEFAULT_RUNTIME)
    if listen == runtime:
        raise SettingsError(f"--listen and --runtime are the same socket, {listen}; the proxy stands between two.")
    return ProxySettings(
        listen,
        runtime,
        Path(environ.get(FOLDER) or DEFAULT_FOLDER).absolute(),
        _drain(environ),
        _naming(environ),
        read_sharing_names(environ),
        environ.get(METRICS_LISTEN) or DEFAULT_METRICS_LISTEN,
    )


def _socket(environ: Mapping[str, str], variable: str, default: str) -> Path:
    text = environ.get(variable) or default
    path = text.removeprefix(SCHEME)
    if not path.startswith("/") or len(path.encode()) > PATH_BYTES_MAX:
        raise SettingsError(
            f"{variable}={text!r} is no unix socket, of {PATH_BYTES_MAX} bytes at most; write it as {default}."
        )
    return Path(path)


def _drain(environ: Mapping[str, str]) -> float:
    text = environ.get(DRAIN_S) or str(DEFAULT_DRAIN_S)
    try:
        value = float(text)
    except ValueError as error:
        raise SettingsError(f"{DRAIN_S}={text!r} is no number of seconds.") from error
    if not 0 <= value <= DRAIN_MAX_S:
        raise SettingsError(f"{DRAIN_S}={text!r} has to be from 0 to {DRAIN_MAX_S:g} seconds.")
    return value


def _naming(environ: Mapping[str, str]) -> DeviceNaming:
    strategy = environ.get(ALLOCATE) or "env"
    if strategy not in STRATEGIES:
        raise SettingsError(f"{ALLOCATE} is {strategy!r}; it is one of {', '.join(STRATEGIES)}.")
    kind = environ.get(CDI_KIND) or DEFAULT_CDI_KIND
    return DeviceNaming(strategy != "cdi", None if strategy == "env" else kind)
