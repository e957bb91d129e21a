"""Memory of a GPU as bytes and as a percentage: how the one follows from the other (seed 002, 4.1). Pure.

A request names one of them; what it gets of a GPU is recorded with both, so that either can be enforced and counted.
"""

from gpuledger.api.sharing import GPU_MEMORY, GPU_MEMORY_RATIO, WHOLE
from gpuledger.domain.sharing.model import Amounts


def ratio_to_memory(ratio: int, total: int) -> int:
    """Bytes that are `ratio` percent of `total` bytes, rounded down."""
    return ratio * total // WHOLE


def memory_to_ratio(memory: int, total: int) -> int:
    """The percentage of `total` bytes that `memory` bytes are, rounded down. `total` is above 0."""
    return WHOLE * memory // total


def completed(amounts: Amounts, total: Amounts) -> Amounts:
    """Amounts of a device that has `total`, with memory or its ratio added where only the other is there.

    What is given is kept, and core is never made up (FACTS, Koordinator). Of a device without memory nothing follows.
    """
    memory = total.get(GPU_MEMORY, 0)
    if not memory or (GPU_MEMORY in amounts) == (GPU_MEMORY_RATIO in amounts):
        return amounts
    if GPU_MEMORY in amounts:
        follows = {GPU_MEMORY_RATIO: memory_to_ratio(amounts[GPU_MEMORY], memory)}
    else:
        follows = {GPU_MEMORY: ratio_to_memory(amounts[GPU_MEMORY_RATIO], memory)}
    return amounts if 0 in follows.values() else {**amounts, **follows}
