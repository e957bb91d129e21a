"""How torchrun is started for a pod of a gang. Pure."""

from typing import Final

from gpuledger.preflight.gang import CompleteGang
from gpuledger.preflight.workers import module_command

WORKER: Final = "gpuledger.preflight.allreduce_worker"
LAUNCHER: Final = "torch.distributed.run"
"""The module of the program `torchrun`."""

TIMEOUT_S: Final = "GPULEDGER_ALLREDUCE_TIMEOUT_S"
"""How long a rank waits for the others, by which it ends with an error of its own, before the check's time is over."""

MARGIN: Final = 0.9


def margin_s(left_s: float) -> float:
    """How long ranks wait for each other in the time that is left."""
    return max(1.0, left_s * MARGIN)


def launch_command(gang: CompleteGang, pod: str, processes: int) -> tuple[str, ...]:
    """The command for a pod with so many cards; no rank is started again, because the others would not wait for it."""
    return (
        *module_command(LAUNCHER),
        f"--nnodes={len(gang.members)}",
        f"--nproc-per-node={processes}",
        f"--node-rank={gang.rank_of(pod)}",
        f"--master-addr={gang.master_address}",
        f"--master-port={gang.master_port}",
        "--max-restarts=0",
        "--module",
        WORKER,
    )
