"""Decides which user a server runs as, and makes it end together with gpuledger.

`setpriv` of util-linux does both without running Python between fork and exec. Without it, servers outlive a killed
parent, and the next start stops them instead.
"""

import functools
import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuledger.local.servers.errors import PrivilegesError

_UNPRIVILEGED_USER = "nobody"
_PROBE_TIMEOUT_S = 10.0
# Lets the other user pass through parents of the data directory that only root may enter.
_REACH_PRIVATE_FOLDERS = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
# PostgreSQL checks its own programs by access(2), which honours capabilities of users other than root only under
# `no_setuid_fixup` (setting it takes CAP_SETPCAP). A setuid program could keep capabilities under that bit when it
# changes its user, so `no-new-privs` takes the effect from them all.
_REACH_PRIVATE_PROGRAMS = ("--securebits=+no_setuid_fixup", "--no-new-privs")


@dataclass(frozen=True)
class Launch:
    """How to start a child: a command in front of its own, or the user and group for `Popen`.

    `added` is what its environment has beside ours.
    """

    prefix: tuple[str, ...] = ()
    user: int | None = None
    group: int | None = None
    added: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The child's environment."""
        return {**os.environ, **self.added}

    @property
    def extra_groups(self) -> list[int] | None:
        """None keeps the current ones; another user gets none."""
        return None if self.user is None else []


@dataclass(frozen=True)
class Account:
    """A numeric user and group."""

    uid: int
    gid: int


def as_ourselves(death_signal: str, added: Mapping[str, str] | None = None) -> Launch:
    """Run as the current user; the child gets `death_signal` (such as `TERM`) when gpuledger dies.

    `added` is what its environment has beside ours.
    """
    return Launch(_working_setpriv(f"--pdeathsig={death_signal}") or (), added=added or {})


def as_account(account: Account, death_signal: str) -> Launch:
    """Run as another user, which only root can do.

    Raises:
        PrivilegesError: neither `setpriv` nor the system call works, as in a container without CAP_SETUID.
    """
    switch = (f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups", f"--pdeathsig={death_signal}")
    for reach in ((*_REACH_PRIVATE_PROGRAMS, *_REACH_PRIVATE_FOLDERS), _REACH_PRIVATE_FOLDERS, ()):
        if prefix := _working_setpriv(*switch, *reach):
            return Launch(prefix)
    if _can_switch_to(account):
        return Launch(user=account.uid, group=account.gid)
    raise PrivilegesError(
        f"PostgreSQL does not run as root, and this process may not run it as user {account.uid} instead. "
        "Run gpuledger as an ordinary user, or set DATABASE_URL to a PostgreSQL server of your own."
    )


def owner_for(data: Path) -> Account | None:
    """The account that must run a server with this data directory; None for the current user.

    Existing data keep their owner, because PostgreSQL refuses data of any other user.

    Raises:
        PrivilegesError: the current user is root and the system has no user `nobody`.
    """
    if os.geteuid() != 0:
        return None
    if data.exists() and (found := data.stat()).st_uid != 0:
        return Account(found.st_uid, found.st_gid)
    try:
        entry = pwd.getpwnam(_UNPRIVILEGED_USER)
    except KeyError as error:
        raise PrivilegesError(
            f"PostgreSQL does not run as root, and this system has no user `{_UNPRIVILEGED_USER}` to run it. "
            "Run gpuledger as an ordinary user, or set DATABASE_URL to a PostgreSQL server of your own."
        ) from error
    return Account(entry.pw_uid, entry.pw_gid)


@functools.cache
def _working_setpriv(*options: str) -> tuple[str, ...] | None:
    """The command with these options, if the installed one accepts them."""
    program = shutil.which("setpriv")
    true = shutil.which("true")
    if program is None or true is None:
        return None
    command = (program, *options)
    return command if _succeeds((*command, true)) else None


@functools.cache
def _can_switch_to(account: Account) -> bool:
    true = shutil.which("true")
    return true is not None and _succeeds((true,), Launch(user=account.uid, group=account.gid))


def _succeeds(command: tuple[str, ...], launch: Launch | None = None) -> bool:
    launch = launch or Launch()
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            cwd="/",
            user=launch.user,
            group=launch.group,
            extra_groups=launch.extra_groups,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
