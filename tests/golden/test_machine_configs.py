"""Manifests in, rendered configurations out: each rule of a merge by a file that a person can read.

GPULEDGER_UPDATE_GOLDEN=1 writes the files anew; read the difference before committing it. A hash that changes there
means that every node of every cluster is updated.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuledger.domain.machineconfig.rendered_document import rendered_document
from gpuledger.domain.machineconfig.rendering import RenderProblem, render
from support.machine_configs import config_objects, read_configs, read_pools

FOLDER = Path(__file__).parent / "machine_configs"
CASES = sorted(FOLDER.glob("*.in.yaml"))


def rendered(file: Path, *, backwards: bool = False) -> list[dict[str, Any]]:
    """What each pool in a file becomes: a RenderedMachineConfig, or the problem."""
    objects = config_objects(file)
    configs, pools = read_configs(objects), read_pools(objects)
    found = []
    for name, pool in pools.items():
        result = render(name, pool, reversed(configs) if backwards else configs, {})
        if isinstance(result, RenderProblem):
            found.append({"pool": name, "problem": str(result)})
        else:
            found.append(rendered_document(name, result, pool))
    return found


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.name.partition(".")[0])
def test_the_pools_are_rendered_as_the_file_has_it(file: Path) -> None:
    expected = file.with_name(file.name.replace(".in.", ".out."))
    found = rendered(file)
    if os.environ.get("GPULEDGER_UPDATE_GOLDEN"):
        expected.write_text(yaml.safe_dump_all(found, sort_keys=False, width=120, allow_unicode=True))
    assert found == config_objects(expected)
    assert rendered(file, backwards=True) == found


def test_every_file_belongs_to_a_case() -> None:
    names = [file.name.partition(".")[0] for file in FOLDER.glob("*.out.yaml")]
    assert sorted(names) == [file.name.partition(".")[0] for file in CASES]
    assert len(CASES) >= 5
