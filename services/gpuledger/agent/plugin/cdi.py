"""The devices in the node's CDI specifications, so that no container goes to a runtime that cannot inject its devices.

Only `kind` and the names of the devices are read. A file is read again when it has changed; an unreadable file names no
devices, and is logged once per version of the file.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import structlog

FILES_MAX: Final = 256
"""How many files of a folder are read; the first ones by name."""

FILE_BYTES_MAX: Final = 1024 * 1024
DEVICES_MAX: Final = 4096

log = structlog.get_logger("gpuledger.agent")


class _State(NamedTuple):
    inode: int
    modified_ns: int
    size: int


class CdiFolders:
    """The specifications in some folders, as they are whenever `names` is called."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._read: dict[Path, tuple[_State, frozenset[str]]] = {}

    def names(self) -> frozenset[str]:
        """The full names, `<kind>=<name>`, of all devices."""
        files = {path: state for folder in self._folders for path, state in _files(folder)}
        self._read = {
            path: self._read[path] if path in self._read and self._read[path][0] == state else (state, _named(path))
            for path, state in files.items()
        }
        return frozenset().union(*(names for _, names in self._read.values()))


def _files(folder: Path) -> Iterator[tuple[Path, _State]]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in {".json", ".yaml", ".yml"})
    except OSError:
        return  # a folder that is not there has no specifications
    for path in paths[:FILES_MAX]:
        try:
            found = path.stat()
        except OSError:
            continue  # it went meanwhile
        yield path, _State(found.st_ino, found.st_mtime_ns, found.st_size)


def _named(path: Path) -> frozenset[str]:
    try:
        return _names_of(_document(path))
    except (OSError, ValueError) as error:
        log.warning("a CDI specification cannot be read", file=str(path), reason=str(error)[:200])
        return frozenset()


def _document(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    with path.open("rb") as file:
        text = file.read(FILE_BYTES_MAX + 1)
    if len(text) > FILE_BYTES_MAX:
        raise ValueError(f"it is longer than {FILE_BYTES_MAX} bytes")
    return orjson.loads(text) if path.suffix == ".json" else _yaml(text)


def _yaml(text: bytes) -> Any:  # noqa: ANN401 - as above
    import yaml  # noqa: PLC0415 - most nodes never need it

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - it is a safe one
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it is no YAML: {error}") from error


def _names_of(document: Any) -> frozenset[str]:  # noqa: ANN401 - as above
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise ValueError("it has no kind; a CDI specification has `kind` and `devices`")
    devices = document.get("devices")
    if not isinstance(devices, list) or len(devices) > DEVICES_MAX:
        raise ValueError(f"its devices are no list of at most {DEVICES_MAX}")
    names = (device.get("name") for device in devices if isinstance(device, dict))
    return frozenset(f"{document['kind']}={name}" for name in names if isinstance(name, str | int))
