"""The response to an Allocate request: what a container gets for the units that the kubelet chose. Pure.

A container sees cards and instances by UUID, never by index, which may mean another card after a reboot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuledger.agent.board import DeviceUnit
from gpuledger.agent.errors import CdiError, UnknownUnitError
from gpuledger.agent.settings import DEFAULT_CDI_KIND, Strategy
from gpuledger.domain.sharing.container_env import VISIBLE_DEVICES


@dataclass(frozen=True, slots=True)
class DeviceInjection:
    """How containers get their devices; `cdi_kind` is the part of a CDI name before its `=`."""

    strategy: Strategy = "env"
    cdi_kind: str = DEFAULT_CDI_KIND

    @property
    def by_env(self) -> bool:
        """Whether the environment names the devices."""
        return self.strategy in {"env", "both"}

    @property
    def by_cdi(self) -> bool:
        """Whether CDI names name them."""
        return self.strategy in {"cdi", "both"}


class ContainerAllocation(NamedTuple):
    """What one container gets."""

    envs: Mapping[str, str]
    cdi_devices: tuple[str, ...]


def allocate(
    units: Mapping[str, DeviceUnit], requested: Sequence[str], how: DeviceInjection, specified: frozenset[str] | None
) -> ContainerAllocation:
    """The devices of the requested units, each once, in the order of the request.

    `specified` are the names in the node's CDI specifications; None skips the check.

    Raises:
        UnknownUnitError: the request names unknown units, or none.
        CdiError: the devices go by CDI names that no specification has.
    """
    uuids = _uuids(units, requested)
    cdi_devices = cdi_devices_of(uuids, how, specified)
    return ContainerAllocation({VISIBLE_DEVICES: ",".join(uuids)} if how.by_env else {}, cdi_devices)


def cdi_devices_of(uuids: Sequence[str], how: DeviceInjection, specified: frozenset[str] | None) -> tuple[str, ...]:
    """The CDI names of devices, none where they do not go by those; `specified` as in `allocate`.

    Raises:
        CdiError: no specification has them.
    """
    cdi_devices = tuple(f"{how.cdi_kind}={uuid}" for uuid in uuids) if how.by_cdi else ()
    missing = [name for name in cdi_devices if specified is not None and name not in specified]
    if missing:
        raise CdiError(
            f"No CDI specification names {', '.join(missing)}. Write one with `nvidia-ctk cdi generate "
            "--device-name-strategy=uuid --output=/var/run/cdi/nvidia.yaml`, or inject devices by the environment."
        )
    return cdi_devices


def _uuids(units: Mapping[str, DeviceUnit], requested: Sequence[str]) -> tuple[str, ...]:
    if not requested:
        raise UnknownUnitError(
            "The request names no units; the kubelet allocates only for containers that request some."
        )
    unknown = [unit_id for unit_id in dict.fromkeys(requested) if unit_id not in units]
    if unknown:
        raise UnknownUnitError(f"There are no units {', '.join(unknown)}; the last list of ListAndWatch has them all.")
    return tuple(dict.fromkeys(units[unit_id].uuid for unit_id in requested))
