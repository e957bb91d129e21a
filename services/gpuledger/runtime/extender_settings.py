"""The settings of the extender of kube-scheduler, from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuledger.api.sharing import Strategy
from gpuledger.runtime.settings import SettingsError

EXTENDER_LISTEN: Final = "GPULEDGER_EXTENDER_LISTEN"
EXTENDER_CERTIFICATE: Final = "GPULEDGER_EXTENDER_CERTIFICATE"
EXTENDER_KEY: Final = "GPULEDGER_EXTENDER_KEY"
EXTENDER_CLIENT_CA: Final = "GPULEDGER_EXTENDER_CLIENT_CA"
SHARING_STRATEGY: Final = "GPULEDGER_SHARING_STRATEGY"
ONE_IN_FLIGHT: Final = "GPULEDGER_SHARING_ONE_IN_FLIGHT"

_SWITCHES: Final = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class ExtenderTls:
    """The extender's certificate and key, and the authority that clients' certificates must be of, if any; PEM."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ExtenderOptions:
    """Where the extender listens (None: as the process decides), with which certificate, and how it places pods.

    With `one_in_flight` a node gets its next pod once the last one has started: whoever gives devices through a device
    plugin has to know for which pod it is called.
    """

    listen: str | None = None
    tls: ExtenderTls | None = None
    strategy: Strategy = Strategy.LEAST_ALLOCATED
    one_in_flight: bool = False


def read_extender_options(environ: Mapping[str, str]) -> ExtenderOptions:
    """The options that the environment sets.

    Raises:
        SettingsError: one of them cannot be used.
    """
    text = environ.get(SHARING_STRATEGY) or Strategy.LEAST_ALLOCATED.value
    if text not in tuple(Strategy):
        raise SettingsError(f"{SHARING_STRATEGY}={text!r} is no strategy. Choose from {', '.join(Strategy)}.")
    switch = (environ.get(ONE_IN_FLIGHT) or "false").lower()
    if switch not in _SWITCHES:
        raise SettingsError(f"{ONE_IN_FLIGHT}={switch!r} is neither true nor false.")
    return ExtenderOptions(environ.get(EXTENDER_LISTEN) or None, _tls(environ), Strategy(text), _SWITCHES[switch])


def _tls(environ: Mapping[str, str]) -> ExtenderTls | None:
    certificate, key, authority = (environ.get(one) for one in (EXTENDER_CERTIFICATE, EXTENDER_KEY, EXTENDER_CLIENT_CA))
    if bool(certificate) is not bool(key) or (authority and not certificate):
        raise SettingsError(
            f"Set {EXTENDER_CERTIFICATE} and {EXTENDER_KEY} together, and {EXTENDER_CLIENT_CA} with them."
        )
    if not certificate or not key:
        return None
    return ExtenderTls(Path(certificate), Path(key), Path(authority) if authority else None)
