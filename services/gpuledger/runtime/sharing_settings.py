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

DOMAIN_LENGTH_MAX: Final = 200
"""Kubernetes has 253 characters for the prefix of a name, and we put a word before the domain."""

_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*").fullmatch


def read_sharing_names(environ: Mapping[str, str]) -> SharingNames:
    """The names under the domain that the environment sets, or under the one by default, and the scheduler's, if any.

    Raises:
        SettingsError: Kubernetes has no names with it.
    """
    domain = environ.get(SHARING_DOMAIN) or DOMAIN
    if len(domain) > DOMAIN_LENGTH_MAX or _DOMAIN(domain) is None:
        raise SettingsError(
            f"{SHARING_DOMAIN}={domain!r} is no DNS name; give one such as {DOMAIN} or gpu.example.com."
        )
    return SharingNames(domain, environ.get(SHARING_SCHEDULER) or None)
