"""Refuses names that a reader has to decode: `python tests/support/naming.py` prints each and where it stands.

A name says what a thing is (`report`, `desired`, `observed`), not what was done to it; docs/glossary.md has our terms.
"""

import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

BANNED: Final = {
    "told": "report, reported, recorded",
    "said": "report, recorded, spec",
    "wanted": "desired, expected",
    "known": "cache, observed, current",
}
"""Each name with what may take its place."""

GENERATED: Final = ("_pb2.py", "_pb2.pyi")


def banned_names(path: Path) -> Iterator[str]:
    """Each banned name of a Python file, as `file:line: what to do`."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.NAME and token.string in BANNED:
                yield f"{path}:{token.start[0]}: `{token.string}` says little; {BANNED[token.string]} may fit"


def main() -> int:
    """Check all tracked Python files of the current folder; the exit code is 1 where a name is banned."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.py"], capture_output=True, text=True, check=True).stdout
    files = [Path(name) for name in listed.split("\0") if name and not name.endswith(GENERATED)]
    problems = [problem for path in files if path.exists() for problem in banned_names(path)]
    print("\n".join(problems[:50]), *([f"... {len(problems)} in all"] if len(problems) > 50 else []), sep="\n", end="")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
