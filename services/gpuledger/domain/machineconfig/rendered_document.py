"""From a rendered configuration in the ledger to the object that nodes read. Pure."""

from gpuledger.domain.machineconfig.canonical_files import desired_file, desired_unit
from gpuledger.domain.machineconfig.desired import DesiredConfig
from gpuledger.domain.machineconfig.rendered_object import Document, document_of
from gpuledger.events.machine_config import MachineConfigPoolDefined, MachineConfigRendered


def rendered_document(pool_name: str, rendered: MachineConfigRendered, pool: MachineConfigPoolDefined) -> Document:
    """The RenderedMachineConfig of a rendered configuration, with the pool's policy of reboots as it is now.

    Raises:
        ValueError: the event has a content that cannot be unpacked, or that is not what its hash says.
    """
    sources = ((one.name, one.priority) for one in rendered.sources)
    return document_of(desired_config(pool_name, rendered, pool), sources)


def desired_config(pool_name: str, rendered: MachineConfigRendered, pool: MachineConfigPoolDefined) -> DesiredConfig:
    """What nodes of the pool apply.

    Raises:
        ValueError: the event has a content that cannot be unpacked, or that is not what its hash says.
    """
    return DesiredConfig(
        rendered.name,
        pool_name,
        rendered.config_hash,
        tuple(map(desired_file, rendered.files)),
        tuple(map(desired_unit, rendered.units)),
        rendered.reboot_required,
        pool.reboot_strategy,
        pool.reboot_min_interval_s,
    )
