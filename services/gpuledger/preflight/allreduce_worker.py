"""The program that torchrun starts for each card of a gang, which needs PyTorch: one communicator, and an all-reduce.

Every rank prints the same bus bandwidth: that of the slowest one. All reduce a sum whose value is known, so that wrong
values are found too.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from gpuledger.preflight.allreduce_command import TIMEOUT_S
from gpuledger.preflight.workers import RESULT

CARD_BYTES: Final = 4 * 1024**3
HOST_BYTES: Final = 8 * 1024**2
FREE_SHARE: Final = 4
"""A card's tensor takes a fourth of its free memory at most."""

REPEATS: Final = 20
WARM_UPS: Final = 5
FLOAT_BYTES: Final = 4

Tensor = Any


def bus_bandwidth_gbps(size_bytes: int, repeats: int, elapsed_s: float, ranks: int) -> float:
    """The bus bandwidth of all-reduces, in GB/s (10^9 bytes): each rank's link carries 2 (n - 1) / n of the data."""
    return size_bytes * repeats / elapsed_s / 1e9 * (2 * (ranks - 1) / ranks)


@record  # type: ignore[untyped-decorator] # PyTorch is not there when types are checked
def main() -> None:
    """Measure and print."""
    local_rank = int(os.environ["LOCAL_RANK"])
    has_card = torch.cuda.is_available()
    device = torch.device(f"cuda:{local_rank}" if has_card else "cpu")
    if has_card:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if has_card else "gloo", timeout=timedelta(seconds=float(os.environ[TIMEOUT_S])), device_id=_id(device)
    )
    try:
        found = _measure(device)
    finally:
        dist.destroy_process_group()
    sys.stdout.write(f"{RESULT}{json.dumps(found)}\n")
    sys.stdout.flush()


def _id(device: Tensor) -> Tensor | None:
    return device if device.type == "cuda" else None


def _measure(device: Tensor) -> dict[str, Any]:
    size_bytes, ranks = _agreed_bytes(device), dist.get_world_size()
    tensor = torch.zeros(size_bytes // FLOAT_BYTES, dtype=torch.float32, device=device)
    settle: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(WARM_UPS):
        dist.all_reduce(tensor)
    settle()
    began_s = time.perf_counter()
    for _ in range(REPEATS):
        dist.all_reduce(tensor)
    settle()
    own_gbps = bus_bandwidth_gbps(size_bytes, REPEATS, time.perf_counter() - began_s, ranks)
    slowest = torch.tensor([own_gbps], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MIN)
    return {
        "rank": dist.get_rank(),
        "ranks": ranks,
        "backend": dist.get_backend(),
        "gbps": slowest.item(),
        "own_gbps": own_gbps,
        "wrong": _wrong(tensor, ranks),
    }


def _agreed_bytes(device: Tensor) -> int:
    """The tensor's size that all ranks have room for."""
    size_bytes = min(CARD_BYTES, torch.cuda.mem_get_info()[0] // FREE_SHARE) if device.type == "cuda" else HOST_BYTES
    agreed = torch.tensor([size_bytes], dtype=torch.int64, device=device)
    dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
    return int(agreed.item()) // FLOAT_BYTES * FLOAT_BYTES


def _wrong(tensor: Tensor, ranks: int) -> int:
    """How many values a last all-reduce of the ranks' numbers makes wrong."""
    tensor.fill_(float(dist.get_rank() + 1))
    dist.all_reduce(tensor)
    return int((tensor != ranks * (ranks + 1) / 2).sum().item())


if __name__ == "__main__":
    main()
