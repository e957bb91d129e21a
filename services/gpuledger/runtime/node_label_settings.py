"""Which label of nodes has their instance type: a setting of both health gateways, the agent's and the one over TCP."""

import re
from collections.abc import Mapping
from typing import Final

from gpuledger.runtime.settings import SettingsError

INSTANCE_TYPE_LABEL: Final = "GPULEDGER_INSTANCE_TYPE_LABEL"

DEFAULT_INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
"""The well-known label, which the cloud's controller or the kubelet's own flag sets."""

_LABEL_KEY: Final = re.compile(
    r"(?=[^/]{1,253}/)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/(?P<name>[^/]+)|(?P<only>[^/]+)"
)
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def read_instance_type_label(environ: Mapping[str, str]) -> str:
    """The label's name.

    Raises:
        SettingsError: no label of Kubernetes may have that name.
    """
    label = environ.get(INSTANCE_TYPE_LABEL) or DEFAULT_INSTANCE_TYPE_LABEL
    found = _LABEL_KEY.fullmatch(label)
    if found is None or not _LABEL_NAME.fullmatch(found["name"] or found["only"]):
        raise SettingsError(
            f"{INSTANCE_TYPE_LABEL} is {label[:80]!r}; it is the name of a label, such as "
            f"{DEFAULT_INSTANCE_TYPE_LABEL}."
        )
    return label
