"""Manifests of MachineConfigs and pools that a preview adds to those of the ledger, or puts in their place.

They are read as the watchers read objects, and checked by the rules that keep a pool from being rendered. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from gpuledger.api.kinds import MACHINE_CONFIG_POOLS, MACHINE_CONFIGS
from gpuledger.domain.machineconfig.config_problems import all_problems
from gpuledger.edge.watchers.resources import machineconfigpools, machineconfigs
from gpuledger.events.machine_config import MachineConfigDefined, MachineConfigPoolDefined
from gpuledger.tools.errors import RequestError

CORRECT: Final = "Correct it, and run the command again"
PROBLEMS_SHOWN_MAX: Final = 5

Object = Mapping[str, Any]


class Manifests(NamedTuple):
    """MachineConfigs and MachineConfigPools by name."""

    configs: Mapping[str, MachineConfigDefined] = {}
    pools: Mapping[str, MachineConfigPoolDefined] = {}


NONE: Final = Manifests()


def manifests_of(objects: Iterable[tuple[str, Object]]) -> Manifests:
    """The manifests among objects, each behind the name of its file.

    Raises:
        RequestError: one is of another kind, there twice, or refused.
    """
    found = Manifests({}, {})
    for file, obj in objects:
        _add(found, file, obj)
    return found


def _add(found: Manifests, file: str, obj: Object) -> None:
    kind, version = obj.get("kind"), obj.get("apiVersion")
    kinds = {MACHINE_CONFIGS.kind: machineconfigs.KIND, MACHINE_CONFIG_POOLS.kind: machineconfigpools.KIND}
    if kind not in kinds or version != MACHINE_CONFIGS.api_version:
        what = f"{kind or 'something without a kind'} of {version or 'no apiVersion'}"
        hint = f"Give {' and '.join(kinds)} of {MACHINE_CONFIGS.api_version}"
        raise RequestError(f"{file} has {what}", hint)
    part = kinds[kind].read(dict(obj))
    if part.subject is None:
        raise RequestError(f"{file} has a {kind} that is not understood: {'; '.join(part.problems)}", CORRECT)
    definition: Any = kinds[kind].combine([part.content])
    _check(f"{file}: {kind} {part.subject}", definition)
    into: Any = found.configs if kind == MACHINE_CONFIGS.kind else found.pools
    if part.subject in into:
        raise RequestError(f"{kind} {part.subject} is there twice, the second time in {file}", "Give it once")
    into[part.subject] = definition


def _check(named: str, definition: MachineConfigDefined | MachineConfigPoolDefined) -> None:
    if isinstance(definition, MachineConfigDefined):
        problems = list(all_problems(definition))
    else:
        problems = list(definition.problems)
    if problems:
        more = f"; and {len(problems) - PROBLEMS_SHOWN_MAX} more" if len(problems) > PROBLEMS_SHOWN_MAX else ""
        raise RequestError(f"{named} is refused: {'; '.join(problems[:PROBLEMS_SHOWN_MAX])}{more}", CORRECT)
