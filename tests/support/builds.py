"""Builds of gpuledger as wheels: of an earlier commit, or of this tree with changes. Each runs in processes of its own.

A process of a build sees its wheel and the installed libraries, and nothing of this tree.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from support.kube_accounts import Image
from support.paths import ROOT
from support.up import DEADLINE_S, SERVERS, Up

TREE = ("pyproject.toml", "README.md", "LICENSE", "events", "schemas", "services", "cli", "migrations")
"""What a wheel is made of."""

BUILD_S = 120.0
_MAIN = "from gpuledger.cli.main import main; main()"


class Change(NamedTuple):
    """A change of a file: what a pattern finds exactly once, and what takes its place."""

    path: str
    pattern: str
    replacement: str


class Build(NamedTuple):
    """An unpacked wheel, and the servers that its processes use."""

    folder: Path
    servers: dict[str, str]

    @property
    def image(self) -> Image:
        """What a container of the build runs."""
        return Image(self._command(_MAIN, ()), self._environment["PYTHONPATH"])

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command, run to its end."""
        return self.python(_MAIN, *arguments)

    def python(self, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The build's Python with some code, run to its end."""
        return subprocess.run(
            self._command(code, arguments),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    @contextmanager
    def up(self) -> Iterator[Up]:
        """`gpuledger up`, ready; an interrupt ends it in order."""
        command = self._command(_MAIN, ("up", "--no-kube", "--listen", "127.0.0.1:0"))
        log = self.folder.parent / f"{self.folder.name}.log"
        with (
            log.open("w") as errors,
            subprocess.Popen(
                command, env=self._environment, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            try:
                assert process.stdout is not None
                printed = ""
                while "/healthz" not in printed:
                    line = process.stdout.readline()
                    assert line, log.read_text()
                    printed += line
                yield Up(process, self.folder, printed)
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, log.read_text()

    def _command(self, code: str, arguments: Sequence[str]) -> tuple[str, ...]:
        # Without `site` the tree that is installed for editing is not on the path.
        return (sys.executable, "-S", "-c", code, *arguments)

    @property
    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in SERVERS}
        path = os.pathsep.join((str(self.folder), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
        return kept | self.servers | {"PYTHONPATH": path, "GPULEDGER_DATA_DIR": str(self.folder.parent / "data")}


def of_commit(commit: str, folder: Path, servers: dict[str, str]) -> Build:
    """The build of a commit; skips the test, visibly, where the history lacks it."""
    found = subprocess.run(
        ("git", "-C", ROOT, "cat-file", "-e", f"{commit}^{{commit}}"), capture_output=True, check=False
    )
    if found.returncode:
        pytest.skip(f"the history of this checkout has no commit {commit}")
    tree = folder / f"tree-{commit}"
    tree.mkdir()
    archive = subprocess.run(("git", "-C", ROOT, "archive", commit, *TREE), capture_output=True, check=True).stdout
    subprocess.run(("tar", "-x", "-C", tree), input=archive, check=True)
    return _built(tree, folder / commit, servers)


def of_this_tree(folder: Path, servers: dict[str, str], changes: Sequence[Change]) -> Build:
    """The build of this tree as it lies there, with changes."""
    tree = folder / "tree"
    tree.mkdir()
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tree / name)
    for path, pattern, replacement in changes:
        text, count = re.subn(pattern, replacement, (tree / path).read_text())
        assert count == 1, f"{pattern} is {count} times in {path}"
        (tree / path).write_text(text)
    return _built(tree, folder / "newer", servers)


def _built(tree: Path, folder: Path, servers: dict[str, str]) -> Build:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    assert uv is not None, "make install brings uv"
    subprocess.run((uv, "build", "--quiet", "--wheel", "--out-dir", tree / "dist", tree), check=True, timeout=BUILD_S)
    (wheel,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    return Build(folder, servers)
