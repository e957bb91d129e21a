"""Renders a pool's configuration: selects MachineConfigs, merges them, and names the result. Pure.

The same inputs give the same bytes, whatever their order and whichever machine renders them. A MachineConfig that is
refused or not understood keeps the whole pool from being rendered: what its author meant is not in the result.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpuledger.api.machine_config import REVISION_LENGTH, rendered_name
from gpuledger.domain.machineconfig.canonical_files import CanonicalFiles, canonical_unit
from gpuledger.domain.machineconfig.config_hash import hash_of_canonical
from gpuledger.domain.machineconfig.config_problems import all_problems
from gpuledger.domain.machineconfig.selection import in_merge_order, selection_of
from gpuledger.domain.machineconfig.validation import files_above
from gpuledger.events.machine_config import (
    FILES_MAX,
    SOURCES_MAX,
    UNITS_MAX,
    ConfigFile,
    ConfigSource,
    ConfigUnit,
    MachineConfigDefined,
    MachineConfigPoolDefined,
    MachineConfigRendered,
)
from gpuledger.events.payload import DATA_BYTES_MAX

OBJECT_BYTES_MAX: Final = 1280 * 1024
"""The canonical JSON of a configuration; an API server stores objects of 1.5 MiB, with all that it adds to them."""

ENTRY_BYTES: Final = 512
"""What an event has of a file beside its content and path, of a unit and of a source, at most."""

_FILES: Final = CanonicalFiles()

NamedConfig = tuple[str, MachineConfigDefined]


class RenderProblem(NamedTuple):
    """Why a pool's configuration cannot be rendered; `config` is the MachineConfig that has to be mended."""

    config: str | None
    message: str

    def __str__(self) -> str:
        return f"MachineConfig {self.config}: {self.message}" if self.config else self.message


class _Merged(NamedTuple):
    files: tuple[ConfigFile, ...]
    units: tuple[ConfigUnit, ...]


def render(
    pool_name: str,
    pool: MachineConfigPoolDefined,
    configs: Iterable[NamedConfig],
    taken: Mapping[str, str],
) -> MachineConfigRendered | RenderProblem:
    """What the pool's nodes are to have, from all MachineConfigs there are.

    Args:
        pool_name: the pool, which is part of the result's name.
        pool: its spec, whose selector chooses among the MachineConfigs.
        configs: all MachineConfigs by name, in any order.
        taken: the hashes of the RenderedMachineConfigs that exist, by name. The result has a name of its own, or that
            of the one with the same hash.
    """
    selection = selection_of(pool)
    return render_selected(
        pool_name, [item for item in configs if selection.has_config(item[0], item[1].labels)], taken
    )


def render_selected(
    pool_name: str, configs: Iterable[NamedConfig], taken: Mapping[str, str]
) -> MachineConfigRendered | RenderProblem:
    """As `render`, where it is clear already which MachineConfigs the pool selects."""
    ordered = in_merge_order(configs)
    if problem := next(_problems(ordered), None):
        return problem
    merged = _merge(ordered)
    if problem := next(_problems_of_merge(ordered, merged), None):
        return problem
    reboot_required = any(one.reboot_required for _, one in ordered)
    try:
        files = [_FILES.of(one) for one in merged.files]
    except ValueError as error:
        return RenderProblem(None, f"a file cannot be read: {error}")
    units = [canonical_unit(one) for one in merged.units]
    if (size := sum(map(len, files)) + sum(map(len, units))) > OBJECT_BYTES_MAX:
        return RenderProblem(None, _too_large("one object", size, OBJECT_BYTES_MAX))
    found = hash_of_canonical(files, units, reboot_required=reboot_required)
    return MachineConfigRendered(
        name=free_name(pool_name, found, taken),
        revision=found[:REVISION_LENGTH],
        config_hash=found,
        files=merged.files,
        units=merged.units,
        reboot_required=reboot_required,
        sources=tuple(ConfigSource(name=name, priority=one.priority) for name, one in ordered),
    )


def free_name(pool_name: str, found: str, taken: Mapping[str, str]) -> str:
    """The first name of a configuration that is free, or that of one with the same hash."""
    names = (rendered_name(pool_name, found, collision) for collision in range(len(taken) + 1))
    return next(name for name in names if taken.get(name, found) == found)


def _problems(ordered: Sequence[NamedConfig]) -> Iterator[RenderProblem]:
    for name, one in ordered:
        yield from (RenderProblem(name, problem) for problem in all_problems(one))


def _merge(ordered: Sequence[NamedConfig]) -> _Merged:
    """Files by path and units by name: whole entries of the last MachineConfig that has them."""
    files = {file.path: file for _, one in ordered for file in one.files}
    units = {unit.name: unit for _, one in ordered for unit in one.units}
    return _Merged(tuple(files[path] for path in sorted(files)), tuple(units[name] for name in sorted(units)))


def _problems_of_merge(ordered: Sequence[NamedConfig], merged: _Merged) -> Iterator[RenderProblem]:
    """What does not go together, or is more than an event holds."""
    present = [one.path for one in merged.files if one.state == "present"]
    for above, path in files_above(present):
        yield RenderProblem(_last_with(ordered, path), f"{path} is in {above}, which is to be a file")
    counts = (
        ("files", len(merged.files), FILES_MAX),
        ("units", len(merged.units), UNITS_MAX),
        ("MachineConfigs", len(ordered), SOURCES_MAX),
    )
    for what, count, most in counts:
        if count > most:
            yield RenderProblem(None, f"it has {count} {what}; a pool has {most} at most")
    size = sum(len(one.content) + len(one.path.encode()) for one in merged.files)
    size += ENTRY_BYTES * sum(count for _, count, _ in counts)
    if size > DATA_BYTES_MAX:
        yield RenderProblem(None, _too_large("the ledger, compressed", size, DATA_BYTES_MAX))


def _last_with(ordered: Sequence[NamedConfig], path: str) -> str:
    return next(name for name, one in reversed(ordered) if any(file.path == path for file in one.files))


def _too_large(where: str, size: int, most: int) -> str:
    return f"its files are too large together for {where}: {size} bytes of {most}; make them smaller or select fewer"
