"""A container runtime loads the archive that `make image` made, and runs it: containerd, where it is installed.

The tests beside this one unpack the image themselves; here somebody else reads its manifest, its layers and its user.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from support.pods.sandbox import FOLDER, IMAGE, USER, missing
from support.servers import short_directory
from support.waiting import eventually

ARCHIVE: Final = FOLDER / "gpuledger.tar"
PROGRAMS: Final = ("containerd", "ctr", "runc")
COMMAND_MAX_S: Final = 300.0
CONFIG: Final = """
version = 2
root = "{root}/data"
state = "{root}/run"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{root}/c.sock"
"""

absent = [name for name in PROGRAMS if shutil.which(name) is None]
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2 * COMMAND_MAX_S + 60),
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.skipif(bool(absent) or os.geteuid() != 0, reason=f"needs root, and {', '.join(absent)}"),
]


@asynccontextmanager
async def containerd(root: Path) -> AsyncIterator[tuple[str, ...]]:
    """A containerd of its own; gives the words with which its client's commands begin."""
    (root / "config.toml").write_text(CONFIG.format(root=root))
    with (root / "log").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            "containerd", "--config", str(root / "config.toml"), stdout=output, stderr=output
        )
    try:

        async def answers() -> bool:
            return (root / "c.sock").exists()

        await eventually(answers)
        yield ("ctr", "--address", str(root / "c.sock"))
    finally:
        process.terminate()
        await process.wait()


async def output_of(*command: str) -> str:
    """What a command that succeeds prints."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    async with asyncio.timeout(COMMAND_MAX_S):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_containerd_loads_the_archive_and_runs_it_as_its_user() -> None:
    with short_directory() as root:
        async with containerd(root) as ctr:
            await output_of(*ctr, "image", "import", str(ARCHIVE))
            assert IMAGE in (await output_of(*ctr, "image", "ls", "--quiet")).split()
            run = (*ctr, "run", "--rm", "--read-only", IMAGE)
            assert (await output_of(*run, "user", "id", "--user")).strip() == str(USER)
            assert "ledger" in await output_of(*run, "version", "gpuledger", "version")
