"""What of a MachineConfig is refused, by its place in the spec. Pure."""

from collections.abc import Iterator
from typing import Final

from gpuledger.domain.machineconfig.validation import (
    mode_problem,
    owner_problem,
    path_problem,
    repeated,
    state_problem,
    unit_problem,
)
from gpuledger.events.machine_config import ConfigFile, ConfigUnit, MachineConfigDefined

SHOWN_LENGTH_MAX: Final = 100


def all_problems(definition: MachineConfigDefined) -> Iterator[str]:
    """What its event has already, else what the rules refuse."""
    if definition.problems:
        yield from definition.problems
    else:
        yield from refusals(definition.files, definition.units)


def refusals(files: tuple[ConfigFile, ...], units: tuple[ConfigUnit, ...]) -> Iterator[str]:
    """What the rules refuse of a MachineConfig's files and units."""
    for index, one in enumerate(files):
        yield from _of_file(f"spec.files[{index}]", one)
    for index, unit in enumerate(units):
        if problem := unit_problem(unit.name) or state_problem(unit.name, unit.state):
            yield f"spec.systemd.units[{index}].name {_shown(unit.name)} {problem}"
    for path in repeated([one.path for one in files]):
        yield f"spec.files has {_shown(path)} more than once; leave one of them"
    for name in repeated([one.name for one in units]):
        yield f"spec.systemd.units has {_shown(name)} more than once; leave one of them"


def _of_file(place: str, one: ConfigFile) -> Iterator[str]:
    if problem := path_problem(one.path):
        yield f"{place}.path {_shown(one.path)} {problem}"
    if problem := owner_problem(one.owner):
        yield f"{place}.owner {_shown(one.owner)} {problem}"
    if problem := mode_problem(one.mode):
        yield f"{place}.mode {_shown(one.mode)} {problem}"


def _shown(value: object) -> str:
    return repr(value)[:SHOWN_LENGTH_MAX]
