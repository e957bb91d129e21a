"""The folders are the architecture: guards that no other tool gives."""

import ast
import re
import tomllib
from collections.abc import Iterator

from support.paths import ROOT

SOURCE_ROOTS = ("events", "schemas", "services", "cli", "migrations")
PURE_ROOMS = (
    "gpuledger.agent.",
    "gpuledger.api.",
    "gpuledger.domain.",
    "gpuledger.edge.statuswriter.",
    "gpuledger.edge.watchers.",
    "gpuledger.events.",
)
"""Rooms in which every module that calls itself pure has to be under the contract of purity."""


def test_the_namespace_has_no_init_file() -> None:
    """One stray `gpuledger/__init__.py` hides every other root, while type checkers still pass."""
    assert [str(root) for root in SOURCE_ROOTS if (ROOT / root / "gpuledger" / "__init__.py").exists()] == []


def test_nothing_outside_the_namespace_is_shipped() -> None:
    for root in SOURCE_ROOTS:
        names = {path.name for path in (ROOT / root).iterdir() if path.name != "__pycache__"}
        assert names == {"gpuledger"}, root


def test_readme_names_exactly_two_set_up_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    section = readme.split("## Set up", 1)[1].split("\n## ", 1)[0]
    assert [line.split("#")[0].strip() for line in section.splitlines() if line.startswith("make ")] == [
        "make demo",
        "make test",
    ]


def pure_modules() -> Iterator[str]:
    """The modules whose docstring calls them pure."""
    for root in SOURCE_ROOTS:
        for path in (ROOT / root).rglob("*.py"):
            if re.search(r"\bPure\b", ast.get_docstring(ast.parse(path.read_text())) or ""):
                yield ".".join(path.relative_to(ROOT / root).with_suffix("").parts)


def test_modules_that_call_themselves_pure_are_under_the_contract_of_purity() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = {one["name"]: one for one in settings["tool"]["importlinter"]["contracts"]}
    sources = contracts["Decisions are pure"]["source_modules"]
    covered = re.compile("|".join(re.escape(one).replace(r"\*\*", ".+") + r"(\..+)?" for one in sources)).fullmatch
    assert [name for name in pure_modules() if name.startswith(PURE_ROOMS) and not covered(name)] == []
