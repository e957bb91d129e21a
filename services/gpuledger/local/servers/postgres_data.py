"""The data directory of a PostgreSQL server: made once, in one step, and used by one server at a time."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from gpuledger.local.servers.errors import PrivilegesError, ServerStartError
from gpuledger.local.servers.postgres_binaries import find_binaries
from gpuledger.local.servers.privileges import Account, Launch

INITDB_TIMEOUT_S = 120.0
BACKENDS_TIMEOUT_S = 15.0
PASSABLE_MODE = 0o711
"""The server's account can pass through such a folder to its data, and sees nothing else."""


@contextmanager
def new_data(data: Path, owner: Account | None) -> Iterator[Path]:
    """A folder to fill, which becomes the data directory at the end, so no interrupted attempt looks complete."""
    fresh = data.with_name(f"{data.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    if owner is not None:
        os.chown(fresh, owner.uid, owner.gid)
    yield fresh
    fresh.rename(data)


def run_initdb(data: Path, launch: Launch, superuser: str, *options: str) -> None:
    """Set up an empty folder as PostgreSQL's.

    Raises:
        ServerStartError: it could not.
        PrivilegesError: the account that runs PostgreSQL may not enter the folder.
    """
    arguments = ("-D", str(data), "-U", superuser, "--encoding=UTF8", "--locale=C", "--no-instructions")
    done = run_program("initdb", data, launch, *arguments, *options)
    if done.returncode != 0:
        raise _initdb_error(data, done.stdout.decode(errors="replace"))


def run_program(
    program: str, data: Path, launch: Launch, *arguments: str, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run one of PostgreSQL's programs to its end, as the account that runs the server.

    Raises:
        ServerStartError: it could not be run, or took too long.
    """
    try:
        return subprocess.run(
            (*launch.prefix, str(find_binaries() / program), *arguments),
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=INITDB_TIMEOUT_S,
            check=False,
            cwd="/",
            user=launch.user,
            group=launch.group,
            extra_groups=launch.extra_groups,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _initdb_error(data, str(error)) from error


def check_version(data: Path, launch: Launch) -> None:
    """Refuse data of another major version of PostgreSQL, which the programs could not read.

    Raises:
        ServerStartError: they are of another one, or incomplete.
    """
    try:
        written = (data / "PG_VERSION").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ServerStartError(
            f"{data} is no data directory of PostgreSQL: it has no PG_VERSION ({error.strerror}). "
            "Restore a back-up into an empty volume, or let the ledger fill it anew (docs/operations.md)."
        ) from error
    version = run_program("postgres", data, launch, "--version").stdout.decode(errors="replace").strip()
    if version.rpartition(" ")[2].partition(".")[0] != written:
        raise ServerStartError(
            f"{data} was written by PostgreSQL {written}, and {find_binaries()} has {version}, which cannot read it. "
            "With the release that wrote it, save the database by `pg_dump --format=custom`; give this one an empty "
            "volume and load it by `pg_restore --no-owner --no-privileges --exit-on-error` (docs/operations.md)."
        )


def await_old_sessions(data: Path) -> None:
    """Wait for sessions of a killed server: while they hold its shared memory, a new server refuses to start."""
    sessions = [process for process in psutil.process_iter() if _is_at_home(data, process)]
    _, alive = psutil.wait_procs(sessions, timeout=BACKENDS_TIMEOUT_S)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=BACKENDS_TIMEOUT_S)
    _drop_misleading_pid_file(data)


def _is_at_home(data: Path, process: "psutil.Process") -> bool:
    with suppress(psutil.Error, OSError):
        return process.name().startswith("postgres") and process.cwd() == str(data)
    return False


def _drop_misleading_pid_file(data: Path) -> None:
    """Remove a pid file that names another program, as after a crash of the machine."""
    pid_file = data / "postmaster.pid"
    with suppress(FileNotFoundError, ValueError, IndexError, psutil.Error):
        recorded = psutil.Process(int(pid_file.read_text().splitlines()[0]))
        if not _is_at_home(data, recorded):
            pid_file.unlink()


def _initdb_error(data: Path, output: str) -> ServerStartError | PrivilegesError:
    if os.geteuid() == 0 and "permission denied" in output.lower():
        return PrivilegesError(
            "PostgreSQL does not run as root, and the user that runs it instead may not enter "
            f"{data.parent} or {find_binaries()}. Install `setpriv` (package util-linux), run gpuledger as an "
            "ordinary user, or install gpuledger and choose a --data-dir where everybody may enter. "
            f"The output of initdb:\n{output}"
        )
    return ServerStartError(f"PostgreSQL could not set up {data}. Check the disk. The output of initdb:\n{output}")
