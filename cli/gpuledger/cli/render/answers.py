"""Answers of `why` and `what-if`: a page that ends with the answer for people, the whole document for programs."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from gpuledger.cli.render import Console, quiet_pipe
from gpuledger.cli.render.page import Page
from gpuledger.cli.render.values import json_text, yaml_text

Document = dict[str, Any]


class AnswerOutput(StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[AnswerOutput, typer.Option("--output", "-o", help="Output format.")]


def show_answer(document: Document, output: AnswerOutput, page_of: Callable[[Document], Page]) -> None:
    """Print it."""
    if output is AnswerOutput.TABLE:
        page_of(document).show()
        return
    console = Console.standard()
    with quiet_pipe(console.out):
        as_json = output is AnswerOutput.JSON
        console.out.write(f"{json_text(document, indent=True)}\n" if as_json else yaml_text(document))
