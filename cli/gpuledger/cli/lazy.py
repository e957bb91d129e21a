"""Commands that are imported when they are called, so that none waits for what only others import.

Only the help and the completion of all commands import all of them.
"""

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from gpuledger.runtime.garbage import imports_unwalked

VERBATIM = "\b"
"""Begins a paragraph whose lines stay as they are."""


class Place(NamedTuple):
    """Where a command is defined: a function of a module, or a `typer.Typer` for a group of commands."""

    module: str
    attribute: str
    hidden: bool = False
    context_settings: dict[str, Any] | None = None


class LazyCommands(Mapping[str, object]):
    """Commands by name. One that is looked up is imported and built, once in a process."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places
        self._built: dict[str, object] = {}

    def __getitem__(self, name: str) -> object:
        if name not in self._built:
            self._built[name] = _build(name, self._places[name])
        return self._built[name]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def lazy_group(commands: LazyCommands) -> type[TyperGroup]:
    """The class of a group with these commands."""

    class LazyGroup(TyperGroup):
        """Lists its commands without importing them."""

        def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - whatever typer gives a group
            super().__init__(**attributes | {"commands": commands})

        def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - the same in every context
            return list(commands)

    return LazyGroup


def _build(name: str, place: Place) -> object:
    with imports_unwalked():
        defined = getattr(import_module(place.module), place.attribute)
    holder = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    holder.callback()(_group_of_one)
    if isinstance(defined, typer.Typer):
        holder.add_typer(defined, name=name, hidden=place.hidden)
    else:
        holder.command(name, hidden=place.hidden, context_settings=place.context_settings)(defined)
    reflow(holder)
    group = get_command(holder)
    assert isinstance(group, TyperGroup)
    return group.commands[name]


def _group_of_one() -> None:
    """Has typer make a group, whatever is in it."""


def reflow(commands: typer.Typer) -> None:
    """Reflow the help of all commands, those of groups included."""
    for command in commands.registered_commands:
        command.help = reflowed(command.help or inspect.getdoc(command.callback) or "")
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            reflow(group.typer_instance)


def reflowed(text: str) -> str:
    """The text with each paragraph on one line."""
    return "\n\n".join(one if one.startswith(VERBATIM) else " ".join(one.split()) for one in text.split("\n\n"))
