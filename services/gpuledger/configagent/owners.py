"""The ids of users and groups by the host's own /etc/passwd and /etc/group; a container has others. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

ROOT: Final = "root"
_ID_FIELD: Final = 2
ID_MAX: Final = 2**32 - 2
"""The number above means that no id is given."""


class OwnerIds(NamedTuple):
    """The numbers of a user and of a group."""

    uid: int
    gid: int


class Accounts(NamedTuple):
    """The users and groups of a host, by name."""

    users: Mapping[str, int]
    groups: Mapping[str, int]

    def ids(self, owner: str) -> OwnerIds:
        """The numbers of `user:group`, either of which may be a number itself.

        Raises:
            ValueError: the host has no such user or group.
        """
        user, _, group = owner.partition(":")
        return OwnerIds(_number(user, self.users, "user"), _number(group, self.groups, "group"))


def read_accounts(passwd: str, group: str) -> Accounts:
    """The accounts of a host by the texts of its files; root is there even where they are not."""
    return Accounts({ROOT: 0} | _ids(passwd), {ROOT: 0} | _ids(group))


def _ids(text: str) -> dict[str, int]:
    rows = (line.split(":") for line in text.splitlines())
    # As the C library does, the first of several lines counts.
    return {row[0]: int(row[_ID_FIELD]) for row in reversed([*rows]) if len(row) > _ID_FIELD and _is_id(row[_ID_FIELD])}


def _number(name: str, ids: Mapping[str, int], kind: str) -> int:
    if name in ids:
        return ids[name]
    if _is_id(name):
        return int(name)
    raise ValueError(f"the host has no {kind} {name!r}; make it first, or write its number")


def _is_id(text: str) -> bool:
    """Whether it is a number that the kernel takes."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(ID_MAX)) and int(text) <= ID_MAX
