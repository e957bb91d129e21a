"""The canonical JSON of files in events, kept so that an unchanged content is not unpacked at each rendering. Pure.

What is kept follows from a file's fields alone, so it changes no result, only the time that one takes.
"""

from collections import OrderedDict
from hashlib import sha256
from typing import Final

from gpuledger.domain.machineconfig.config_hash import file_json, unit_json
from gpuledger.domain.machineconfig.desired import DesiredFile, DesiredUnit
from gpuledger.events.machine_config import ConfigFile, ConfigUnit, unpack_content

KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""The canonical JSON that is kept between renderings; beyond that, files go that were used longest ago."""

_Key = tuple[str, str, int, str, str]


class CanonicalFiles:
    """The canonical JSON of files by what identifies it, of a bounded size in all."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[_Key, bytes] = OrderedDict()
        self._size = 0

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return self._size

    def of(self, one: ConfigFile) -> bytes:
        """The canonical JSON of a file.

        Raises:
            ValueError: its content cannot be unpacked, or it is not what its hash says.
        """
        key = (one.hash, one.path, one.mode, one.owner, one.state)
        if (found := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return found
        self._keep(key, raw := file_json(desired_file(one)))
        return raw

    def _keep(self, key: _Key, raw: bytes) -> None:
        self._kept[key] = raw
        self._size += len(raw)
        while self._size > self._bytes_max:
            _, dropped = self._kept.popitem(last=False)
            self._size -= len(dropped)


def checked_content(one: ConfigFile) -> str:
    """A file's content.

    Raises:
        ValueError: it cannot be unpacked, or it is not what its hash says.
    """
    content = unpack_content(one.content) if one.content else ""
    if content_hash(content) != one.hash:
        raise ValueError("the content is not what its hash says")
    return content


def content_hash(content: str) -> str:
    """The hash of a file's content, as events have it."""
    return sha256(content.encode()).hexdigest()


def desired_file(one: ConfigFile) -> DesiredFile:
    """A file of an event with its content.

    Raises:
        ValueError: the content cannot be unpacked, or it is not what its hash says.
    """
    return DesiredFile(one.path, checked_content(one), one.mode, one.owner, one.state)


def desired_unit(one: ConfigUnit) -> DesiredUnit:
    """A unit of an event."""
    return DesiredUnit(one.name, one.enabled, one.state, one.mask)


def canonical_unit(one: ConfigUnit) -> bytes:
    """The canonical JSON of a unit of an event."""
    return unit_json(desired_unit(one))
