"""What a node is to have: files and systemd units, with the contents themselves. Pure, and light enough for every node.

Events have the same packed and checked by pydantic, which the process that writes files of a host does without.
"""

from typing import NamedTuple


class DesiredFile(NamedTuple):
    """A file of a configuration; `state` is `present` or `absent`, `mode` the permission bits as a number."""

    path: str
    content: str
    mode: int
    owner: str
    state: str


class DesiredUnit(NamedTuple):
    """A systemd unit of a configuration; what is None is left as it is."""

    name: str
    enabled: bool | None
    state: str | None
    mask: bool


class DesiredConfig(NamedTuple):
    """A RenderedMachineConfig as a node applies it: files by path, units by name.

    `name` is what the node's annotations have as its revision. `reboot_strategy` and `reboot_min_interval_s` are the
    pool's policy, which alone may change.
    """

    name: str
    pool: str
    config_hash: str
    files: tuple[DesiredFile, ...]
    units: tuple[DesiredUnit, ...]
    reboot_required: bool
    reboot_strategy: str
    reboot_min_interval_s: int
