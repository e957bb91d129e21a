"""Help texts as they are shown: a paragraph is as wide as the terminal, however its source is broken into lines."""

import inspect

import typer

VERBATIM = "\b"
"""Begins a paragraph whose lines stay as they are."""


def let_flow(app: typer.Typer) -> None:
    """Have the help of all commands flow, those of groups included."""
    for command in app.registered_commands:
        text = command.help or inspect.getdoc(command.callback) or ""
        command.help = flowing(text)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            let_flow(group.typer_instance)


def flowing(text: str) -> str:
    """The text with each paragraph on one line."""
    return "\n\n".join(one if one.startswith(VERBATIM) else " ".join(one.split()) for one in text.split("\n\n"))
