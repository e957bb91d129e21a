"""Which error of NCCL a log shows, by the names that NVSentinel gives them. Pure.

Logs are those of NCCL itself, of nccl-tests and of PyTorch, gloo included. Of several errors the one that stands first
counts: the later ones follow from it. Return codes in NCCL's INFO lines (`-> 2`) count for nothing, since healthy runs
have them too, and neither do other INFO lines.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.domain.preflight.text import cleaned, message_of


class NcclCode(StrEnum):
    """Error codes of checks that use NCCL. The last three are not NVSentinel's design but needed beside it."""

    SYSTEM_ERROR = "NCCL_SYSTEM_ERROR"
    INTERNAL_ERROR = "NCCL_INTERNAL_ERROR"
    INVALID_USAGE = "NCCL_INVALID_USAGE"
    TIMEOUT = "NCCL_TIMEOUT"
    REMOTE_ERROR = "NCCL_REMOTE_ERROR"
    BANDWIDTH = "NCCL_BW_DEGRADED"
    """The bus bandwidth is below the threshold; NVSentinel's own check names it so."""
    WRONG_RESULT = "NCCL_WRONG_RESULT"
    """A collective came out with wrong values."""
    UNKNOWN = "NCCL_UNKNOWN_ERROR"
    """It failed, and no log says why."""


class NcclFailure(NamedTuple):
    """An error, with the line that shows it; empty where none does."""

    code: NcclCode
    evidence: str


_CUDA: Final = "CUDA"

_NAMED: Final = re.compile(
    "(?i)"
    r"(?P<SYSTEM_ERROR>ncclSystemError|unhandled system error)"
    r"|(?P<INTERNAL_ERROR>ncclInternalError|internal error - please report|internal error, NCCL version)"
    r"|(?P<INVALID_USAGE>ncclInvalid(?:Usage|Argument)"
    r"|(?:failure [^'\n]{0,200}'|NCCL error[^\n]{0,300}?, )invalid (?:usage|argument))"
    r"|(?P<REMOTE_ERROR>ncclRemoteError|remote process exited or there was a network error"
    r"|Connection (?:closed|reset) by peer \[)"
    r"|(?P<TIMEOUT>caught collective operation timeout|Timed out (?:after|waiting|initializing)|socket has timed out"
    r"|Socket Timeout|wait timeout after)"
    rf"|(?P<{_CUDA}>ncclUnhandledCudaError|unhandled cuda error|Test CUDA failure|\bCUDA error: )"
)
"""What names an error outright."""

_WARNED: Final = re.compile(
    r"(?m)^[^\n]{0,300}NCCL WARN [^\n]{0,300}?(?:"
    r"(?P<REMOTE_ERROR>[Cc]onnection closed by remote peer|Call to (?:recv|send) from|Got completion)"
    r"|(?P<INVALID_USAGE>[Dd]uplicate GPU detected|[Ii]nvalid (?:usage|argument|device))"
    rf"|(?P<{_CUDA}>Cuda failure|CUDA failure)"
    r"|(?P<SYSTEM_ERROR>Call to \w{1,60} failed|[Nn]o socket interface found|Error: failed to))"
)
"""What NCCL warns of, where nothing names the error. Only warnings: INFO lines are no failures."""

_LOCKED: Final = re.compile(r"Call to ibv_\w{0,20}reg_mr\w{0,20} failed with error Cannot allocate memory")
"""A process may lock too little memory for RDMA, which its container lacks IPC_LOCK or the runtime a limit for."""

_CONFIGURED: Final = re.compile(
    r"(?i)out of memory|no kernel image|driver version is insufficient|invalid device ordinal"
)
"""Errors of CUDA that blame what runs, not the card."""


def classify(text: str) -> NcclFailure | None:
    """The error that a log shows; None where it shows none, which is no proof of success."""
    clean = cleaned(text)
    if (locked := _LOCKED.search(clean)) is not None:
        return NcclFailure(NcclCode.INVALID_USAGE, message_of(_line(clean, locked.start())))
    found = _NAMED.search(clean) or _WARNED.search(clean)
    if found is None or found.lastgroup is None:
        return None
    return NcclFailure(_code(found.lastgroup, clean), message_of(_line(clean, found.end() - 1)))


def classify_failure(text: str) -> NcclFailure:
    """The error that the log of a run shows that did fail; `NcclCode.UNKNOWN` where it shows none."""
    return classify(text) or NcclFailure(NcclCode.UNKNOWN, "")


def _code(group: str, text: str) -> NcclCode:
    """NVSentinel has no code for errors of CUDA: they are of the system, or of what was run on it."""
    if group != _CUDA:
        return NcclCode[group]
    return NcclCode.INVALID_USAGE if _CONFIGURED.search(text) else NcclCode.SYSTEM_ERROR


def _line(text: str, at: int) -> str:
    end = text.find("\n", at)
    return text[text.rfind("\n", 0, at) + 1 : end if end >= 0 else len(text)]
