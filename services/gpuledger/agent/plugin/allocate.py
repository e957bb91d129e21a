"""What a container gets for the units that the kubelet chose for it. Pure: specifications were read before.

A container sees cards or instances by their UUIDs and never by an index, which may mean another card after a reboot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from gpuledger.agent.board import DeviceUnit
from gpuledger.agent.errors import CdiError, UnknownUnitError

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
DEFAULT_CDI_KIND: Final = "nvidia.com/gpu"

Strategy = Literal["env", "cdi", "both"]
"""By which way a runtime learns of the devices: an environment variable, CDI names, or both."""


@dataclass(frozen=True, slots=True)
class Handing:
    """How devices are handed over; `cdi_kind` is the part of a CDI name before its `=`."""

    strategy: Strategy = "env"
    cdi_kind: str = DEFAULT_CDI_KIND

    @property
    def by_env(self) -> bool:
        """Whether the environment tells."""
        return self.strategy in {"env", "both"}

    @property
    def by_cdi(self) -> bool:
        """Whether CDI names tell."""
        return self.strategy in {"cdi", "both"}


class ContainerAllocation(NamedTuple):
    """What one container gets."""

    envs: Mapping[str, str]
    cdi_devices: tuple[str, ...]


def allocate(
    units: Mapping[str, DeviceUnit], asked: Sequence[str], how: Handing, named: frozenset[str] | None
) -> ContainerAllocation:
    """What a container gets for some units, each device once, in the order asked.

    `named` are the devices that CDI specifications name; None where nobody looked.

    Raises:
        UnknownUnitError: there are no such units, or none were asked for.
        CdiError: the devices are to be handed over by CDI, and no specification names them.
    """
    uuids = _uuids(units, asked)
    cdi_devices = tuple(f"{how.cdi_kind}={uuid}" for uuid in uuids) if how.by_cdi else ()
    missing = [name for name in cdi_devices if named is not None and name not in named]
    if missing:
        raise CdiError(
            f"No CDI specification names {', '.join(missing)}. Write one with `nvidia-ctk cdi generate "
            "--device-name-strategy=uuid --output=/var/run/cdi/nvidia.yaml`, or hand devices over by the environment."
        )
    return ContainerAllocation({VISIBLE_DEVICES: ",".join(uuids)} if how.by_env else {}, cdi_devices)


def _uuids(units: Mapping[str, DeviceUnit], asked: Sequence[str]) -> tuple[str, ...]:
    if not asked:
        raise UnknownUnitError("The request names no units; a container that asks for none is not to be asked about.")
    unknown = [unit_id for unit_id in dict.fromkeys(asked) if unit_id not in units]
    if unknown:
        raise UnknownUnitError(f"There are no units {', '.join(unknown)}; the last list of ListAndWatch has them all.")
    return tuple(dict.fromkeys(units[unit_id].uuid for unit_id in asked))
