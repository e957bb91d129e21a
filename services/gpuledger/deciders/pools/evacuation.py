"""Decides whether pods are to leave a device that leaves its pool. Pure.

Whoever puts the label on the device decides that. The maintenance of its node carries it out, with everybody else's.
"""

from gpuledger.api.labels import LABEL_EVACUATE
from gpuledger.domain.pools.rows import PoolDevice
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import DeviceAssignmentChanged, Evacuation
from gpuledger.events.drain_mode import MODES
from gpuledger.events.payload import truncated


def evacuated(step: DeviceAssignmentChanged, state: PoolFacts, device: PoolDevice) -> DeviceAssignmentChanged:
    """The step by which a device leaves its pool, with its evacuation where its label requests one.

    A label that cannot be followed is ignored, and the step says so.
    """
    given = state.labels_of(device).get(LABEL_EVACUATE)
    if given is None:
        return step
    mode = next((one for one in MODES if one == given), None)
    if mode is None:
        return _ignored(step, f"The label {LABEL_EVACUATE}={given} is none of {', '.join(MODES)}")
    if device.uuid is None:
        return _ignored(step, f"The label {LABEL_EVACUATE} needs a UUID, and that of the device is unknown")
    return step.model_copy(update={"evacuation": Evacuation(node=device.node, device=device.uuid, mode=mode)})


def _ignored(step: DeviceAssignmentChanged, why: str) -> DeviceAssignmentChanged:
    message = f"{step.message} {why}; no pod is evicted.".strip()
    return step.model_copy(update={"message": truncated(message)})
