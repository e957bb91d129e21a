"""The termination message: what a check leaves about itself where Kubernetes keeps it, with 4,096 bytes at most."""

from pathlib import Path
from typing import Final

from gpuledger.events.payload import CUT, truncated
from gpuledger.events.preflight import CODES_MAX, PreflightResult
from gpuledger.preflight.conclusion import CheckConclusion

BYTES_MAX: Final = 4096
"""What the kubelet keeps of a termination message."""

ESCAPED_BYTES_MAX: Final = 6


def termination_of(result: CheckConclusion, duration_s: float) -> PreflightResult:
    """The result as watchers read it."""
    return PreflightResult(
        outcome=result.outcome,
        codes=result.codes[:CODES_MAX],
        message=truncated(result.message),
        duration_s=round(duration_s, 3),
        gang_wait_s=None if result.gang_wait_s is None else round(result.gang_wait_s, 3),
        bandwidth_gbps=None if result.bandwidth_gbps is None else round(result.bandwidth_gbps, 3),
        threshold_gbps=result.threshold_gbps,
    )


def message_of(result: PreflightResult) -> bytes:
    """The result as JSON within the bound; the message is cut as far as that needs."""
    text = _json(result)
    while len(text) > BYTES_MAX and result.message:
        # JSON escapes a character into at most six bytes, so this cuts too little at a time, and one at least.
        excess = max(1, (len(text) - BYTES_MAX) // ESCAPED_BYTES_MAX)
        kept = result.message.removesuffix(CUT)[:-excess]
        result = result.model_copy(update={"message": kept + CUT if kept else ""})
        text = _json(result)
    return text if len(text) <= BYTES_MAX else _json(result.model_copy(update={"codes": ()}))


def _json(result: PreflightResult) -> bytes:
    return result.model_dump_json(exclude_defaults=True).encode()


def write_result(path: Path, result: PreflightResult) -> None:
    """Write the result where Kubernetes keeps it.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_bytes(message_of(result))
