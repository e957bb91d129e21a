"""Runs a command in the unpacked image as a container runtime does, with util-linux alone: root may, others may not.

A container gets the image's root file system read-only, `/proc`, the machine's plain devices, its mounts, a user, a
bounding set of capabilities, process numbers of its own unless it shares the machine's, and a cgroup where it is in one
of a pod. Signals to the process group reach the command itself.
"""

import asyncio
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from support.paths import ROOT

FOLDER: Final = ROOT / "dist" / "image"
BUNDLE: Final = FOLDER / "bundle"
IMAGE: Final = "localhost/gpuledger:0.1.0"
"""What `make image` calls it."""

USER: Final = 65532
TOOLS: Final = ("unshare", "mount", "chroot", "ip", "sh")
DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
LINKS_MAX: Final = 64
PROBE_MAX_S: Final = 20.0

_SCRIPT: Final = """
set -eu
mount -t tmpfs tmpfs {base}
mkdir {base}/upper {base}/work {base}/root
mount -t overlay overlay -o lowerdir={rootfs},upperdir={base}/upper,workdir={base}/work {base}/root
{points}
mount -o remount,ro {base}/root
mount -t proc proc {base}/root/proc
mount -t tmpfs tmpfs {base}/root/dev -o mode=755
{devices}
mkdir {base}/root/dev/shm
mount -t tmpfs tmpfs {base}/root/dev/shm -o mode=1777
{device_points}
{mounts}
exec chroot {base}/root {command}
"""


@dataclass(frozen=True)
class Mount:
    """A file or folder of the machine in a container."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Container:
    """What to run, and with which rights; `network` is a namespace of `ip netns`, empty for the machine's.

    `cgroup` is a folder of the cgroups, None: it is in the machine's own.
    """

    args: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    uid: int = USER
    gid: int = USER
    groups: Sequence[int] = ()
    capabilities: Sequence[str] = ()
    mounts: Sequence[Mount] = ()
    network: str = ""
    shares_pids: bool = False
    working_dir: str = ""
    cgroup: Path | None = None


@cache
def image_config() -> dict[str, Any]:
    """What the image says of its containers: `args`, `env`, `cwd` and `user`."""
    process: dict[str, Any] = orjson.loads((BUNDLE / "config.json").read_bytes())["process"]
    return process


def command_of(container: Container, base: Path) -> list[str]:
    """The command that runs the container; `base` is an empty folder of its own."""
    rootfs, config = BUNDLE / "rootfs", image_config()
    root = base / "root"
    resolved = [replace(one, target=resolved_in(rootfs, one.target)) for one in container.mounts]
    mounts = sorted(resolved, key=lambda one: one.target)
    points = {
        is_device: [_point(one, root) for one in mounts if _is_device(one) == is_device] for is_device in (False, True)
    }
    devices = [f"touch {root}/dev/{name} && mount --bind /dev/{name} {root}/dev/{name}" for name in DEVICES]
    text = _SCRIPT.format(
        base=base,
        rootfs=rootfs,
        points="\n".join(points[False]),
        devices="\n".join(devices),
        device_points="\n".join(points[True]),
        mounts="\n".join(_mount(one, root) for one in mounts),
        command=shlex.join(_with_rights(container, config)),
    )
    network = ["ip", "netns", "exec", container.network] if container.network else []
    pids = [] if container.shares_pids else ["--pid", "--kill-child=KILL"]
    isolated = [*network, "unshare", "--mount", "--propagation", "private", *pids, "--fork", "sh", "-c", text]
    return [*joining(container.cgroup), *isolated]


def joining(cgroup: Path | None) -> list[str]:
    """What a command begins with, to be in a cgroup."""
    return [] if cgroup is None else ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(cgroup / "cgroup.procs")]


def resolved_in(rootfs: Path, target: str) -> str:
    """The path without the image's symbolic links, which would lead out of it to the machine's own files."""
    done = "/"
    todo = [part for part in target.split("/") if part]
    for _ in range(LINKS_MAX):
        if not todo:
            return done
        part, *todo = todo
        path = rootfs / done.lstrip("/") / part
        if path.is_symlink():
            link = str(path.readlink())
            done = "/" if link.startswith("/") else done
            todo = [*(one for one in link.split("/") if one), *todo]
        else:
            done = f"{done.rstrip('/')}/{part}"
    raise AssertionError(f"{target} has too many parts, or links that lead in circles")


def _with_rights(container: Container, config: dict[str, Any]) -> list[str]:
    bounding = ",".join(["-all", *(f"+{name.lower().removeprefix('cap_')}" for name in container.capabilities)])
    groups = ["--groups", ",".join(map(str, container.groups))] if container.groups else ["--clear-groups"]
    environ = dict(one.split("=", 1) for one in config["env"]) | dict(container.environ)
    return [
        *("setpriv", "--reuid", str(container.uid), "--regid", str(container.gid), *groups),
        *("--inh-caps=-all", "--ambient-caps=-all", f"--bounding-set={bounding}", "--no-new-privs", "--"),
        *("env", "-i", "-C", container.working_dir or config["cwd"]),
        *(f"{name}={value}" for name, value in environ.items()),
        *container.args,
    ]


def _is_device(one: Mount) -> bool:
    """Whether it lies in the folder that the container gets anew."""
    return one.target.startswith("/dev/")


def _point(one: Mount, root: Path) -> str:
    target = shlex.quote(f"{root}{one.target}")
    if one.source.is_dir():
        return f"mkdir -p {target}"
    return f"mkdir -p $(dirname {target}) && touch {target}"


def _mount(one: Mount, root: Path) -> str:
    source, target = shlex.quote(str(one.source)), shlex.quote(f"{root}{one.target}")
    read_only = f"\nmount -o remount,bind,ro {target}" if one.read_only else ""
    return f"mount --bind {source} {target}{read_only}"


async def start(container: Container, base: Path, output: int) -> asyncio.subprocess.Process:
    """Start a container; its output goes to a file descriptor, and its process group is its own."""
    base.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - it is in memory
    return await asyncio.create_subprocess_exec(
        *command_of(container, base),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )


@cache
def missing() -> str:
    """Why containers cannot run here, and what to do; empty where they can."""
    if not (BUNDLE / "config.json").exists():
        return f"{BUNDLE} is not there: make image"
    if stale := _stale():
        return f"{BUNDLE} is of another tree, which differs in {stale}: make image"
    if os.geteuid() != 0:
        return "only root can run containers of the image: sudo make test-long"
    if absent := [tool for tool in TOOLS if shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]:
        return f"{', '.join(absent)} is not there: make image-tools"
    command = ("unshare", "--mount", "--pid", "--net", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
    tried = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_MAX_S, check=False)
    return f"this machine lets nobody make namespaces: {tried.stderr.strip()}" if tried.returncode else ""


def _stale() -> str:
    """A module of the tree that the image has not, or has differently."""
    (installed,) = (BUNDLE / "rootfs/opt/gpuledger/lib").glob("python*/site-packages")
    for root in ("events", "schemas", "services", "cli", "migrations"):
        for path in sorted((ROOT / root / "gpuledger").rglob("*.py")):
            name = path.relative_to(ROOT / root)
            copy = installed / name
            if not copy.exists() or copy.read_bytes() != path.read_bytes():
                return str(name)
    return ""
