"""The page for contributors: each answer to "where is it decided" names a file, and a name that is defined in it."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from support.paths import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
ANSWER = re.compile(r"^\| (?P<question>[^|]+\?) \| \[[^\]]+\]\((?P<path>[^)]+)\) \| `(?P<name>\w+)` \|", re.MULTILINE)
ANSWERS_MIN = 25


class Answer(NamedTuple):
    """Which file decides, and by what."""

    question: str
    path: str
    name: str


ANSWERS = [Answer(**match.groupdict()) for match in ANSWER.finditer(PAGE)]


def test_there_are_enough_answers() -> None:
    assert len(ANSWERS) >= ANSWERS_MIN


def defined_names(source: str) -> Iterator[str]:
    """The functions, classes and constants of a module."""
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.question)
def test_an_answer_names_what_is_defined_in_its_file(answer: Answer) -> None:
    tree = ast.parse((ROOT / answer.path).read_text())
    defined = {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    defined |= {
        node.target.id for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assigned = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    defined |= {target.id for target in assigned if isinstance(target, ast.Name)}
    assert answer.name in defined


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\((?!http|#)([^)#]+)", PAGE))))
def test_a_link_leads_somewhere(path: str) -> None:
    assert (ROOT / path).exists()
