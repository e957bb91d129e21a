"""Retires a GPUDevice whose card is gone for good, by an annotation that the watchers record as an event.

The `inventory` service decides what comes of it: it withdraws the device, and the ledger keeps the card's passport.
"""

from gpuledger.api.conditions import ConditionStatus, DeviceConditionType
from gpuledger.api.labels import ANNOTATION_RETIRED, LABEL_IGNORE, LABEL_TRUE
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.tools.device_annotations import annotate
from gpuledger.tools.errors import ToolError


async def retire(client: KubeClient, device: str) -> bool:
    """Retire a device; returns False if it is retired already.

    Raises:
        ToolError: there is no such device, or its card is not missing.
    """

    def change(current: Object) -> dict[str, str | None] | None:
        if not _is_missing(current):
            hint = (
                "Remove the card first; the device is Missing within a minute. To keep a card that stays out of every "
                f"pool, label it {LABEL_IGNORE}={LABEL_TRUE}"
            )
            raise ToolError(f"The card of GPUDevice {device!r} is not missing", hint)
        is_retired = (current["metadata"].get("annotations") or {}).get(ANNOTATION_RETIRED) == LABEL_TRUE
        return None if is_retired else {ANNOTATION_RETIRED: LABEL_TRUE}

    return await annotate(client, device, change)


def _is_missing(device: Object) -> bool:
    conditions = (device.get("status") or {}).get("conditions") or []
    return any(
        (one["type"], one["status"]) == (DeviceConditionType.MISSING, ConditionStatus.TRUE) for one in conditions
    )
