"""What differs between two rendered configurations, file by file and unit by unit. Pure."""

from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import Final, Literal, NamedTuple

from gpuledger.domain.machineconfig.canonical_files import checked_content
from gpuledger.events.machine_config import ConfigFile, ConfigUnit, MachineConfigRendered

Change = Literal["added", "changed", "no longer managed"]

NOT_THERE: Final = "/dev/null"
"""As a unified diff names what is not there."""

NO_NEWLINE: Final = "\\ No newline at end of file"


class FileDifference(NamedTuple):
    """A file that differs: what of it but its content, and a unified diff of that, line by line."""

    path: str
    change: Change
    attributes: tuple[str, ...]
    diff: tuple[str, ...]


class UnitDifference(NamedTuple):
    """A systemd unit that differs, and what of it."""

    name: str
    change: Change
    attributes: tuple[str, ...]


class ConfigDifferences(NamedTuple):
    """What differs between two configurations; `reboot` says how their requirement of a reboot does, if so."""

    files: tuple[FileDifference, ...]
    units: tuple[UnitDifference, ...]
    reboot: str | None

    def __bool__(self) -> bool:
        return bool(self.files or self.units or self.reboot)


def differences(before: MachineConfigRendered | None, after: MachineConfigRendered) -> ConfigDifferences:
    """What differs; without one before, everything is new.

    Raises:
        ValueError: a content cannot be unpacked, or is not what its hash says.
    """
    was, now = () if before is None else before.files, after.files
    units = () if before is None else before.units
    required = before is not None and before.reboot_required
    reboot = (
        None if required == after.reboot_required else f"required: {_word(required)} -> {_word(after.reboot_required)}"
    )
    return ConfigDifferences(tuple(_files(was, now)), tuple(_units(units, after.units)), reboot)


def _files(before: Sequence[ConfigFile], after: Sequence[ConfigFile]) -> Iterator[FileDifference]:
    was, now = {one.path: one for one in before}, {one.path: one for one in after}
    for path in sorted(was.keys() | now.keys()):
        old, new = was.get(path), now.get(path)
        if old is None or new is None or _facts(old) != _facts(new):
            yield FileDifference(path, _change(old, new), _attributes(old, new), tuple(_diff(path, old, new)))


def _facts(file: ConfigFile) -> tuple[object, ...]:
    return file.hash, file.mode, file.owner, file.state


def _attributes(old: ConfigFile | None, new: ConfigFile | None) -> tuple[str, ...]:
    if new is not None and new.state == "absent":
        return tuple(_changed([("state", old and old.state, new.state)]))
    pairs = (
        ("state", old and old.state, new and new.state),
        ("mode", old and f"{old.mode:04o}", new and f"{new.mode:04o}"),
        ("owner", old and old.owner, new and new.owner),
    )
    return tuple(_changed(pairs))


def _changed(pairs: Sequence[tuple[str, object, object]]) -> Iterator[str]:
    """What differs; of something that is added what it has, and nothing of what is no longer managed."""
    for name, old, new in pairs:
        if new is not None and old != new:
            yield f"{name}: {_word(new)}" if old is None else f"{name}: {_word(old)} -> {_word(new)}"


def _diff(path: str, old: ConfigFile | None, new: ConfigFile | None) -> Iterator[str]:
    names = (NOT_THERE if _is_absent(old) else path, NOT_THERE if _is_absent(new) else path)
    yield from unified_diff(_lines(old), _lines(new), *names, lineterm="")


def _is_absent(file: ConfigFile | None) -> bool:
    return file is None or file.state == "absent"


def _lines(file: ConfigFile | None) -> list[str]:
    """The lines of a content; one that does not end with a line says so, as diff does."""
    if file is None or file.state == "absent":
        return []
    content = checked_content(file)
    lines = content.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]}\n{NO_NEWLINE}"]


def _change(old: object | None, new: object | None) -> Change:
    if old is None:
        return "added"
    return "no longer managed" if new is None else "changed"


def _units(before: Sequence[ConfigUnit], after: Sequence[ConfigUnit]) -> Iterator[UnitDifference]:
    was, now = {one.name: one for one in before}, {one.name: one for one in after}
    for name in sorted(was.keys() | now.keys()):
        old, new = was.get(name), now.get(name)
        if old != new:
            yield UnitDifference(name, _change(old, new), _unit_attributes(old, new))


def _unit_attributes(old: ConfigUnit | None, new: ConfigUnit | None) -> tuple[str, ...]:
    pairs = (
        ("enabled", old and old.enabled, new and new.enabled),
        ("state", old and old.state, new and new.state),
        ("mask", old.mask if old is not None else None, new.mask if new is not None else None),
    )
    given = [(name, was, now) for name, was, now in pairs if not (old is None and now is False and name == "mask")]
    left = [
        f"{name}: {_word(was)} -> as it is"
        for name, was, now in pairs
        if new is not None and was is not None and now is None
    ]
    return (*_changed(given), *left)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
