"""The folders are the architecture: guards that no other tool gives."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

from support.naming import banned_names
from support.paths import ROOT

SOURCE_ROOTS = ("events", "schemas", "services", "cli", "migrations")
"""The folders that each hold a portion of the package `gpuledger`."""


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
    assert [name for name in pure_modules() if not covered(name)] == []


FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50


def written(*folders: str) -> list[Path]:
    """The Python files that people write: neither generated ones nor migrations, which never change again."""
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split("\0") if name.endswith(".py") and not name.endswith("_pb2.py")]
    return [ROOT / name for name in names if "/versions/" not in name and (ROOT / name).exists()]


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in written()}
    assert {name: length for name, length in lengths.items() if length > FILE_LINES_MAX} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    functions = [
        (f"{path.relative_to(ROOT)}: {node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for path in written(*SOURCE_ROOTS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [name for name, length in functions if length > FUNCTION_LINES_MAX] == []


def test_a_name_that_a_reader_has_to_decode_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('told = {"said": 1}\n"""What is known."""\nlast_wanted = told\n')
    assert [problem.split(":")[1] for problem in banned_names(file)] == ["1", "3"]
