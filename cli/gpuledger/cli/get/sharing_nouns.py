"""The columns of shared GPUs and of who holds what of them, as `gpuledger get gpus` and `get shares` show them."""

from typing import Final

from gpuledger.api.sharing import GPU
from gpuledger.cli.get.noun import Noun
from gpuledger.cli.render import Column, View
from gpuledger.domain.sharing.rows import SHARED_ALLOCATION, SHARED_DEVICE

BYTES_PER_GIB: Final = 2**30


def percent(value: object) -> str:
    """An amount in percent of a device."""
    return f"{value}%"


def gib(value: object) -> str:
    """Bytes, in GiB."""
    assert isinstance(value, int)
    return f"{value / BYTES_PER_GIB:.4g}Gi"


def health(value: object) -> str:
    """Whether a device is healthy, in a word."""
    return "Healthy" if value else "Unhealthy"


def holders(value: object) -> str:
    """The pods that hold something of a device."""
    return str(value).replace(",", ", ") or "-"


GPUS: Final = Noun(
    View(
        "gpu",
        (
            Column("node"),
            Column("minor", right=True),
            Column("uuid", "id"),
            Column("model"),
            Column("health", "healthy", format=health),
            Column("core used", right=True, format=percent),
            Column("core", right=True, format=percent),
            Column("memory used", right=True, format=gib),
            Column("memory", right=True, format=gib),
            Column("pods", "holders", format=holders, wraps=True),
            Column("ratio used", wide=True, right=True, format=percent),
            Column("ratio", wide=True, right=True, format=percent),
            Column("held by", "pods", wide=True, right=True),
        ),
        "id",
    ),
    "shares",
    SHARED_DEVICE,
    ("node", "type", "minor"),
    "shared_devices_at",
    aliases=("gpu",),
    narrowed_by=("node",),
    always=(("type", GPU),),
)

SHARES: Final = Noun(
    View(
        "share",
        (
            Column("pod"),
            Column("node"),
            Column("type"),
            Column("minor", right=True),
            Column("device", "id"),
            Column("core", right=True, format=percent),
            Column("memory", right=True, format=gib),
            Column("ratio", right=True, format=percent),
            Column("since", "valid_from"),
            Column("until", "valid_to"),
            Column("uid", wide=True),
        ),
        "pod",
    ),
    "shares",
    SHARED_ALLOCATION,
    ("pod", "uid", "node", "type", "minor", "valid_from"),
    "shared_allocations_at",
    hidden=("over_at",),
    aliases=("share",),
    narrowed_by=("node", "namespace"),
    ends="valid_to",
)
