"""The settings of sharing that all processes of an installation have in common: the names that it has."""

import re
from collections.abc import Mapping
from typing import Final

from gpuledger.api.sharing import DOMAIN, SharingNames
from gpuledger.runtime.settings import SettingsError

SHARING_DOMAIN: Final = "GPULEDGER_SHARING_DOMAIN"
"""The domain of shared resources, labels and annotations, such as `kooperator` in `kooperator/gpu-core`."""

SHARING_SCHEDULER: Final = "GPULEDGER_SHARING_SCHEDULER"
"""The `schedulerName` of pods that get shared devices, where a scheduler of its own places them."""

SHARING_ACCOUNT: Final = "GPULEDGER_SHARING_ACCOUNT"
"""The user name of the service account that writes pods' DeviceAllocations; without it those of the release may."""

DOMAIN_LENGTH_MAX: Final = 200
"""Kubernetes has 253 characters for the prefix of a name, and we put a word before the domain."""

_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*").fullmatch
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}").fullmatch


def read_sharing_names(environ: Mapping[str, str]) -> SharingNames:
    """The names under the domain that the environment sets, or under the one by default; with scheduler and account.

    Raises:
        SettingsError: Kubernetes has no such names.
    """
    domain = environ.get(SHARING_DOMAIN) or DOMAIN
    if len(domain) > DOMAIN_LENGTH_MAX or _DOMAIN(domain) is None:
        raise SettingsError(
            f"{SHARING_DOMAIN}={domain!r} is no DNS name; give one such as {DOMAIN} or gpu.example.com."
        )
    return SharingNames(domain, _name(environ, SHARING_SCHEDULER), _name(environ, SHARING_ACCOUNT))


def _name(environ: Mapping[str, str], variable: str) -> str | None:
    value = environ.get(variable) or None
    if value is not None and _NAME(value) is None:
        raise SettingsError(f"{variable}={value!r} is no name of Kubernetes: it has letters, digits and any of .:_-.")
    return value
