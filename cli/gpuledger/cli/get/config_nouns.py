"""The columns of machine configuration, as `gpuledger get machineconfigpools` and its like show them.

Those of pools are the ones of `kubectl get mcp`, so that who knows that table finds its way in this one.
"""

from typing import Final

from gpuledger.api.kinds import MACHINE_CONFIG_POOLS as POOLS
from gpuledger.api.kinds import MACHINE_CONFIGS as CONFIGS
from gpuledger.api.kinds import RENDERED_MACHINE_CONFIGS as RENDERED
from gpuledger.cli.get.noun import Noun
from gpuledger.cli.render import Column, View
from gpuledger.domain.machineconfig.rows import CONFIG_POOL, MACHINE_CONFIG, RENDERED_CONFIG

PROJECTION: Final = "rollout"


def listed(texts: object) -> str:
    """Names, one behind the other."""
    assert isinstance(texts, list)
    return ", ".join(texts) or "-"


def counted(texts: object) -> str:
    """How many there are."""
    assert isinstance(texts, list)
    return str(len(texts))


MACHINE_CONFIGS: Final = Noun(
    View(
        "machineconfig",
        (
            Column("name"),
            Column("priority", right=True),
            Column("files", right=True, format=counted),
            Column("units", right=True, format=counted),
            Column("reboot", "reboot_required"),
            Column("pools", format=listed, wraps=True),
            Column("changed", "changed_at"),
            Column("problems", format=listed, wraps=True),
            Column("generation", wide=True, right=True),
            Column("reboot reason", wide=True),
            Column("uid", wide=True),
        ),
        "name",
    ),
    PROJECTION,
    MACHINE_CONFIG,
    ("name",),
    None,
    aliases=("machineconfig", "mc", CONFIGS.full_name),
)

MACHINE_CONFIG_POOLS: Final = Noun(
    View(
        "machineconfigpool",
        (
            Column("name"),
            Column("config"),
            Column("updated"),
            Column("updating"),
            Column("degraded"),
            Column("machinecount", "machines", right=True),
            Column("readymachinecount", "ready", right=True),
            Column("updatedmachinecount", "updated_machines", right=True),
            Column("degradedmachinecount", "degraded_machines", right=True),
            Column("paused"),
            Column("changed", "changed_at"),
            Column("target", wide=True),
            Column("pinned", wide=True),
            Column("updating machines", wide=True, right=True),
            Column("cordoned", wide=True, right=True),
            Column("draining", wide=True, right=True),
            Column("pending reboots", wide=True, right=True),
            Column("unavailable", wide=True, right=True),
            Column("max unavailable", wide=True, right=True),
            Column("last successful", wide=True),
            Column("problem", wide=True),
        ),
        "name",
    ),
    PROJECTION,
    CONFIG_POOL,
    ("name",),
    None,
    aliases=("machineconfigpool", "mcp", POOLS.full_name),
)

RENDERED_CONFIGS: Final = Noun(
    View(
        "renderedmachineconfig",
        (
            Column("name"),
            Column("pool"),
            Column("role"),
            Column("nodes", right=True),
            Column("files", right=True),
            Column("units", right=True),
            Column("reboot", "reboot_required"),
            Column("rendered", "rendered_at"),
            Column("sources", format=listed, wraps=True),
            Column("desired", wide=True, right=True),
            Column("revision", wide=True),
            Column("hash", "config_hash", wide=True),
        ),
        "name",
    ),
    PROJECTION,
    RENDERED_CONFIG,
    ("pool", "place"),
    None,
    aliases=("renderedmachineconfig", "rmc", RENDERED.full_name),
)

CONFIG_NOUNS: Final = {
    CONFIGS.plural: MACHINE_CONFIGS,
    POOLS.plural: MACHINE_CONFIG_POOLS,
    RENDERED.plural: RENDERED_CONFIGS,
}
