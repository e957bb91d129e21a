"""Reads the kernel's log by syslog(2), which takes nothing away from its other readers. It needs CAP_SYSLOG."""

import ctypes
import os
from typing import Final

from gpuledger.agent.hardware.errors import HardwareError

READ_ALL: Final = 3
"""The command SYSLOG_ACTION_READ_ALL of syslog(2): the last messages, however often they were read."""

READ_BYTES_MAX: Final = 1 << 18
"""How much of its end is read; as much as the kernel keeps by default, and thousands of messages."""


class KernelLogError(HardwareError):
    """The kernel's log cannot be read."""


def read_kernel_log() -> str:
    """The last messages of the kernel's log.

    Raises:
        KernelLogError: this process may not read it, or this system has none.
    """
    try:
        read = ctypes.CDLL(None, use_errno=True).klogctl
    except (AttributeError, OSError) as error:
        raise KernelLogError("This system has no kernel log that can be read.") from error
    buffer = ctypes.create_string_buffer(READ_BYTES_MAX)
    count = read(READ_ALL, buffer, READ_BYTES_MAX)
    if count < 0:
        reason = os.strerror(ctypes.get_errno())
        raise KernelLogError(f"The kernel's log cannot be read ({reason}). Give the agent the capability SYSLOG.")
    return buffer.raw[:count].decode(errors="replace")
