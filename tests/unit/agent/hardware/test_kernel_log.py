"""XIDs in the kernel's log."""

import ctypes
from typing import Any

import pytest

from gpuledger.agent.hardware.api import Xid
from gpuledger.agent.hardware.errors import HardwareError
from gpuledger.agent.hardware.kernel_log import KernelLogTail, xid_in
from gpuledger.agent.hardware.kernel_log_reader import READ_BYTES_MAX, read_kernel_log

CARD = "0000:17:00.0"


@pytest.mark.parametrize(
    ("message", "xid"),
    [
        ("NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.", Xid(CARD, 79)),
        ("NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", Xid(CARD, 79)),
        ("NVRM: Xid (PCI:0000:00:08.0): 145, RLW_REMAP Nonfatal XC1 i0 Link 10", Xid("0000:00:08.0", 145)),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", Xid("0000:03:00.0", 14)),
        ("NVRM: Xid (PCI:0008:AB:00): 154, GPU recovery action changed", Xid("0008:ab:00.0", 154)),
        ("NVRM: Xid (PCI:10000:01:00): 31, pid=1", Xid("10000:01:00.0", 31)),
        ("NVRM: Xid (PCI:0000:17:00 GPU-I:05 GPU-CI:00): 13, pid=1", Xid(CARD, 13)),
        ("NVRM: GPU at PCI:0000:17:00: GPU-455d8f70-2051-db6c-0430-ffc457bff834", None),
        ("NVRM: Xid (...)", None),
        ("NVRM: Xid (PCI:0000:17:00): abc", None),
        ("NVRM: Xid (PCI:0000:17:00): 12345678901", None),
        ("name=NVRM: Xid (PCI:0000:17:00): 79, ", None),
        ("nvidia-nvswitch0: SXid (PCI:0000:17:00): 79, Fatal", None),
        ("", None),
    ],
)
def test_an_xid_is_found_with_its_card(message: str, xid: Xid | None) -> None:
    assert xid_in(message) == xid


def line(number: int, at: str = "[   12.345678] ", prefix: int = 4) -> str:
    return f"<{prefix}>{at}NVRM: Xid (PCI:0000:17:00): {number}, something\n"


def test_only_what_was_added_counts() -> None:
    tail = KernelLogTail()
    assert tail.take(line(79)) == []
    assert tail.take(line(79)) == []
    log = line(79) + "<6>[   13.0] other\n" + line(48, "[   14.0] ") + line(48, "[   15.0] ")
    assert tail.take(log) == [Xid(CARD, 48), Xid(CARD, 48)]
    assert tail.take(log) == []
    assert tail.take(log[len(line(79)) :] + line(13, "[   16.0] ")) == [Xid(CARD, 13)], "its beginning was overwritten"
    assert tail.take(line(62, "[   17.0] ")) == [Xid(CARD, 62)], "it was cleared, or overwritten as a whole"


def test_a_log_that_was_empty_at_first() -> None:
    tail = KernelLogTail()
    assert tail.take("") == []
    assert tail.take(line(79)) == [Xid(CARD, 79)]


@pytest.mark.parametrize("at", ["", "[   12.345678] ", "[   12.345678][  T1234] ", "[    1.000000][    C0] "])
def test_the_kernel_may_leave_times_out_and_name_who_wrote(at: str) -> None:
    tail = KernelLogTail()
    tail.take("")
    assert tail.take(line(79, at)) == [Xid(CARD, 79)]


@pytest.mark.parametrize("prefix", [8 | 4, 24 | 4, 191])
def test_what_a_process_writes_into_the_log_is_no_error_of_a_card(prefix: int) -> None:
    tail = KernelLogTail()
    tail.take("")
    assert tail.take(line(79, prefix=prefix) + line(48)) == [Xid(CARD, 48)]


def klogctl(monkeypatch: pytest.MonkeyPatch, answer: bytes | int) -> None:
    """Stand where libc's call would: text, or the number of an error."""

    def call(command: int, buffer: Any, size: int) -> int:
        assert (command, size) == (3, READ_BYTES_MAX)
        if isinstance(answer, int):
            ctypes.set_errno(answer)
            return -1
        ctypes.memmove(buffer, answer, len(answer))
        return len(answer)

    libc = type("Libc", (), {"klogctl": staticmethod(call)})
    monkeypatch.setattr(ctypes, "CDLL", lambda _name, **_options: libc)


def test_the_log_is_read_whatever_bytes_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    klogctl(monkeypatch, b"<4>caf\xe9\n")
    assert read_kernel_log() == "<4>caf\ufffd\n"


def test_who_may_not_read_the_log_hears_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    klogctl(monkeypatch, 1)
    with pytest.raises(HardwareError, match=r"Operation not permitted.*SYSLOG"):
        read_kernel_log()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name, **_options: object())
    with pytest.raises(HardwareError, match="no kernel log"):
        read_kernel_log()


def test_this_machines_log_is_text_or_is_refused() -> None:
    try:
        text = read_kernel_log()
    except HardwareError:
        return
    assert all(line.startswith("<") for line in text.splitlines()[1:]), "the first one may be cut"
