"""Objects of Kubernetes in files that commands are given, as `kubectl -f` takes them: files, folders, and stdin."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from gpuledger.cli.errors import CliError, ExitCode

STDIN: Final = "-"
SUFFIXES: Final = (".yaml", ".yml", ".json")
"""Of files in a folder that hold manifests."""

Json = dict[str, Any]

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def objects_in(files: Sequence[str]) -> list[tuple[str, Json]]:
    """The objects in files, each behind the name of its file; a folder stands for the manifests in it.

    Raises:
        CliError: something cannot be read, or is no manifest.
    """
    return [found for file in files for one in _within(file) for found in _objects(one)]


def _within(file: str) -> list[str]:
    path = Path(file)
    if file == STDIN or not path.is_dir():
        return [file]
    found = sorted(str(one) for one in path.iterdir() if one.suffix in SUFFIXES)
    if not found:
        raise CliError(f"Folder {file} has no manifests", f"Their names end with {', '.join(SUFFIXES)}", ExitCode.USAGE)
    return found


def _objects(file: str) -> Iterator[tuple[str, Json]]:
    named = "stdin" if file == STDIN else file
    try:
        documents = list(yaml.load_all(_text(file), Loader=_LOADER))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        what = " ".join(str(error).split())
        raise CliError(
            f"{named} is no YAML: {what}", "Correct it, and run the command again", ExitCode.USAGE
        ) from error
    for document in documents:
        for one in _flattened(document):
            if not isinstance(one, dict):
                raise CliError(f"{named} has something that is no object", "Give manifests", ExitCode.USAGE)
            yield named, one


def _flattened(document: object) -> list[object]:
    """The items of a list, as `kubectl get` writes it, or the one object; none of an empty document."""
    if isinstance(document, dict) and document.get("kind") == "List" and isinstance(document.get("items"), list):
        return list(document["items"])
    if isinstance(document, list):
        return document
    return [] if document is None else [document]


def _text(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        hint = "Name a file or folder with manifests, or - for stdin"
        raise CliError(f"{file} cannot be read: {error.strerror or error}", hint, ExitCode.USAGE) from error
