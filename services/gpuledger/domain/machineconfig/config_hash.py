"""The hash of a configuration: the SHA-256 of its canonical JSON. Pure.

The JSON is compact, its keys are in alphabetical order, files are sorted by path and units by name; what a unit leaves
as it is has no key. Strings are written as Go's encoder writes them, which escapes `<`, `>`, `&` and two separators of
lines, so that the hash of a configuration is the one that machine-config-operator 0.1 computes. Priorities, the reasons
of reboots and the names of MachineConfigs are not part of it.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

import orjson

from gpuledger.domain.machineconfig.desired import DesiredFile, DesiredUnit

_ESCAPED: Final = tuple((chr(code).encode(), f"\\u{code:04x}".encode()) for code in (0x3C, 0x3E, 0x26, 0x2028, 0x2029))


def config_hash(files: Iterable[DesiredFile], units: Iterable[DesiredUnit], *, reboot_required: bool) -> str:
    """The hash of a configuration, in 64 hexadecimal digits; the order of its files and units does not matter."""
    return hash_of_canonical(
        (file_json(one) for one in sorted(files, key=lambda one: one.path)),
        (unit_json(one) for one in sorted(units, key=lambda one: one.name)),
        reboot_required=reboot_required,
    )


def hash_of_canonical(files: Iterable[bytes], units: Iterable[bytes], *, reboot_required: bool) -> str:
    """The hash of files and units whose canonical JSON is given, sorted."""
    document = (
        b'{"files":[', b",".join(files),
        b'],"reboot":{"required":', _boolean_json(reboot_required),
        b'},"systemd":{"units":[', b",".join(units), b"]}}",
    )  # fmt: skip
    return sha256(b"".join(document)).hexdigest()


def string_json(text: str) -> bytes:
    """The canonical JSON of a string."""
    raw = orjson.dumps(text)
    for character, escaped in _ESCAPED:
        raw = raw.replace(character, escaped)
    return raw


def file_json(one: DesiredFile) -> bytes:
    """The canonical JSON of a file."""
    content, owner, path, state = map(string_json, (one.content, one.owner, one.path, one.state))
    return b'{"content":%b,"mode":%d,"owner":%b,"path":%b,"state":%b}' % (content, one.mode, owner, path, state)


def unit_json(one: DesiredUnit) -> bytes:
    """The canonical JSON of a unit."""
    enabled = b"" if one.enabled is None else b'"enabled":%b,' % _boolean_json(one.enabled)
    state = b"" if not one.state else b',"state":%b' % string_json(one.state)
    return b'{%b"mask":%b,"name":%b%b}' % (enabled, _boolean_json(one.mask), string_json(one.name), state)


def _boolean_json(value: bool) -> bytes:
    return b"true" if value else b"false"
