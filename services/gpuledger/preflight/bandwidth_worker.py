"""The program of the check `bandwidth`, which needs PyTorch: copies memory, and prints how fast that was.

Each card copies from and to the host's pinned memory, within its own memory, and to every other card. Without a card it
measures the host's own memory, which says nothing about a GPU.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import torch

from gpuledger.preflight.workers import RESULT

CARD_BYTES: Final = 256 * 1024**2
HOST_BYTES: Final = 16 * 1024**2
REPEATS: Final = 8
WARM_UPS: Final = 2

Tensor = Any


def main() -> int:
    """Measure and print; returns the exit code."""
    measures = _of_cards() if torch.cuda.is_available() else [_of_host()]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sys.stdout.write(f"{RESULT}{json.dumps({'device': device, 'measures': measures})}\n")
    return 0


def _of_cards() -> list[dict[str, Any]]:
    count = torch.cuda.device_count()
    return [measure for card in range(count) for measure in _of_card(card, count)]


def _of_card(card: int, count: int) -> list[dict[str, Any]]:
    torch.cuda.set_device(card)
    host = torch.empty(CARD_BYTES, dtype=torch.uint8, pin_memory=True)
    own, other = _on(card), _on(card)
    pairs = {"host-to-device": (own, host), "device-to-host": (host, own), "device-to-device": (other, own)}
    for peer in range(count):
        if peer != card and torch.cuda.can_device_access_peer(card, peer):
            pairs[f"peer-{peer}"] = (_on(peer), own)
    return [_measure(kind, card, *pair) for kind, pair in pairs.items()]


def _on(card: int) -> Tensor:
    return torch.empty(CARD_BYTES, dtype=torch.uint8, device=f"cuda:{card}")


def _of_host() -> dict[str, Any]:
    source = torch.ones(HOST_BYTES, dtype=torch.uint8)
    return _measure("host-to-host", None, torch.empty_like(source), source)


def _measure(kind: str, card: int | None, target: Tensor, source: Tensor) -> dict[str, Any]:
    settle: Callable[[], None] = torch.cuda.synchronize if card is not None else lambda: None
    for _ in range(WARM_UPS):
        target.copy_(source, non_blocking=True)
    settle()
    began_s = time.perf_counter()
    for _ in range(REPEATS):
        target.copy_(source, non_blocking=True)
    settle()
    elapsed_s = time.perf_counter() - began_s
    copied_bytes = REPEATS * source.numel()
    return {"kind": kind, "card": card, "uuid": _uuid(card), "gbps": copied_bytes / elapsed_s / 1e9}


def _uuid(card: int | None) -> str | None:
    """The card's UUID, where this version of PyTorch tells it."""
    if card is None:
        return None
    found = getattr(torch.cuda.get_device_properties(card), "uuid", None)
    return None if found is None else f"GPU-{str(found).removeprefix('GPU-')}"


if __name__ == "__main__":
    sys.exit(main())
