"""A real containerd with an image of a few programs of this machine, for tests that have one: root, containerd, runc.

The image needs no registry: it is `sh`, `sleep` and `env` with the libraries that they load. Pods use the host's
network, so that no network plugin has to be there.
"""

import asyncio
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from support.waiting import eventually

PROGRAMS: Final = ("containerd", "ctr", "runc")
IMAGE: Final = "gpuledger.test/tools:1"
TOOLS: Final = ("sh", "sleep", "env", "cat")
COMMAND_MAX_S: Final = 120.0
CONFIG: Final = """
version = 2
root = "{root}/data"
state = "{root}/run"
[grpc]
  address = "{root}/runtime.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def missing() -> str:
    """What this machine lacks; empty if nothing."""
    absent = [name for name in (*PROGRAMS, *TOOLS) if shutil.which(name) is None]
    return f"needs root, and {', '.join(absent) or 'nothing else'}" if absent or os.geteuid() != 0 else ""


@asynccontextmanager
async def running_containerd(root: Path) -> AsyncIterator[Path]:
    """A containerd of its own with the image; gives its socket."""
    (root / "config.toml").write_text(CONFIG.format(root=root, image=IMAGE))
    archive = root / "image.tar"
    archive.write_bytes(_archive())
    socket = root / "runtime.sock"
    with (root / "log").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            "containerd", "--config", str(root / "config.toml"), stdout=output, stderr=output
        )
    try:

        async def answers() -> bool:
            return socket.exists()

        await eventually(answers)
        await _run("ctr", "--address", str(socket), "--namespace", "k8s.io", "images", "import", str(archive))
        yield socket
    finally:
        process.terminate()
        await process.wait()


async def _run(*command: str) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    async with asyncio.timeout(COMMAND_MAX_S):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


def _files() -> Iterator[Path]:
    """The programs, and the libraries that they load, as paths that the loader uses."""
    for tool in TOOLS:
        path = Path(shutil.which(tool) or "")
        yield path
        listed = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True).stdout
        yield from (Path(found) for found in re.findall(r"(/\S+) \(0x", listed))


def _archive() -> bytes:
    """The image as `docker save` writes one."""
    layer = _tar({str(path).lstrip("/"): path.resolve().read_bytes() for path in dict.fromkeys(_files())}, mode=0o755)
    config = json.dumps(
        {
            "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
            "os": "linux",
            "config": {
                "Entrypoint": ["sleep", "infinity"],
                "Env": [
                    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "NVIDIA_VISIBLE_DEVICES=all",
                ],
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest: Any = [{"Config": name, "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    return _tar({name: config, "layer.tar": layer, "manifest.json": json.dumps(manifest).encode()})


def _tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
