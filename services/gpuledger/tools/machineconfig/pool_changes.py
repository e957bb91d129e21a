"""Changes MachineConfigPools by the Kubernetes API as people request it: pause, resume, roll back, and unpin.

They are requests like those of kubectl: the watchers record them, and the service `rollout` decides what comes of them.
"""

from typing import Final

from gpuledger.api.kinds import MACHINE_CONFIG_POOLS
from gpuledger.api.machine_config import ANNOTATION_PINNED
from gpuledger.domain.machineconfig.rows import RenderedConfigRow
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.tools.errors import RequestError
from gpuledger.tools.machineconfig.tables import ConfigTables
from gpuledger.tools.object_patches import patch_object

LIST_THEM: Final = "`gpuledger config history {pool}` lists what it has"


async def set_paused(client: KubeClient, pool: str, *, paused: bool) -> bool:
    """Pause or resume a pool; returns False if it is so already.

    Raises:
        ToolError: there is no such pool.
    """

    def change(current: Object) -> Object | None:
        is_paused = bool((current.get("spec") or {}).get("paused"))
        return None if is_paused == paused else {"spec": {"paused": paused}}

    return await patch_object(client, MACHINE_CONFIG_POOLS, pool, change)


async def set_pinned(client: KubeClient, pool: str, revision: str | None) -> bool:
    """Pin a pool to a rendered configuration, or unpin it; returns False if it is so already.

    Raises:
        ToolError: there is no such pool.
    """

    def change(current: Object) -> Object | None:
        pinned = (current["metadata"].get("annotations") or {}).get(ANNOTATION_PINNED)
        return None if pinned == revision else {"metadata": {"annotations": {ANNOTATION_PINNED: revision}}}

    return await patch_object(client, MACHINE_CONFIG_POOLS, pool, change)


def rollback_target(tables: ConfigTables, pool: str, to: str | None) -> RenderedConfigRow:
    """What a rollback of a pool goes back to: as requested, else the last one that worked, else the one before.

    Raises:
        RequestError: there is no such pool or rendered configuration, or none before the present one.
    """
    row, hint = tables.pool(pool), LIST_THEM.format(pool=pool)
    if to is not None:
        return tables.rendered_named(pool, to)
    target, history = tables.target(row.name), tables.history(pool)
    if target is None:
        raise RequestError(f"Nothing has been rendered for MachineConfigPool {pool!r} yet", hint)
    status = tables.statuses.get(pool)
    last = None if status is None else status.last_successful_revision
    if last is not None and last != target and last in tables.rendered:
        return tables.rendered[last]
    place = tables.rendered[target].place
    before = next((one for one in history if one.place < place), None)
    if before is None:
        raise RequestError(f"MachineConfigPool {pool!r} has no rendered configuration before {target}", hint)
    return before
