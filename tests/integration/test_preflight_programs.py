"""Programs of others end in their time with all that they started, and their output is bounded."""

import os
import sys
from pathlib import Path

import psutil
import pytest

from gpuledger.preflight.errors import NotRunError
from gpuledger.preflight.programs import OUTPUT_BYTES_MAX, run_program
from support.waiting import eventually

ENVIRON = dict(os.environ)
WAIT = "import time; time.sleep(600)"


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def _true(value: bool) -> bool:
    return value


async def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = (
        "import pathlib, signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))\n"
        f"one = subprocess.Popen([sys.executable, '-c', {WAIT!r}])\n"
        f"pathlib.Path({str(child)!r}).write_text(str(one.pid))\n"
        "print('begun', flush=True)\n"
        "one.wait()\n"
    )
    output = await run_program((sys.executable, "-c", code), 3.0, ENVIRON)
    assert (output.code, output.text) == (None, "begun\n")
    await eventually(lambda: _true(not alive(int(child.read_text()))))


async def test_a_child_in_a_session_of_its_own_keeps_nobody_waiting(tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = (
        "import pathlib, subprocess, sys\n"
        f"one = subprocess.Popen([sys.executable, '-c', {WAIT!r}], start_new_session=True)\n"
        f"pathlib.Path({str(child)!r}).write_text(str(one.pid))\n"
        "print('done')\n"
    )
    try:
        output = await run_program((sys.executable, "-c", code), 30.0, ENVIRON)
    finally:
        psutil.Process(int(child.read_text())).kill()
    assert (output.code, output.text) == (0, "done\n")


async def test_the_end_of_a_long_output_is_kept() -> None:
    code = f"import sys; sys.stdout.write('x' * {3 * OUTPUT_BYTES_MAX}); print('the end')"
    output = await run_program((sys.executable, "-c", code), 30.0, ENVIRON)
    assert len(output.text) == OUTPUT_BYTES_MAX
    assert output.text.endswith("the end\n")


async def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(NotRunError, match="all_reduce_perf cannot be run: No such file or directory"):
        await run_program(("all_reduce_perf",), 1.0, {"PATH": "/nowhere"})
