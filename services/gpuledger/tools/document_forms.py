"""What documents of rules have in common: how YAML is read, and how what is wrong is reported, with its place. Pure.

Nothing of a document is in force before all of it was checked and recorded.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel, to_snake
from pydantic_core import ErrorDetails

from gpuledger.domain.inventory.state import json_text
from gpuledger.edge.kube.schema.cel_values import parsed_duration
from gpuledger.events.payload import Payload
from gpuledger.tools.errors import RequestError

DOCUMENT_BYTES_MAX: Final = 256 * 1024
"""How large a document may be: it is recorded as one event."""

PROBLEMS_SHOWN_MAX: Final = 10
CORRECT: Final = "Correct it, and run the command again"


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("it is a duration such as 10m")
    found = parsed_duration(value)
    if found is None:
        raise ValueError(f"{value!r} is no duration such as 10m")
    seconds = found.total_seconds()
    if seconds != int(seconds):
        raise ValueError(f"{value!r} is not a whole number of seconds")
    return int(seconds)


Duration = Annotated[int, BeforeValidator(_seconds)]


class Form(BaseModel):
    """A part of a document, with the names of fields that YAML has."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, strict=True)


class RulesForm(Form, ABC):
    """A whole document; its form says which `kind` it is."""

    kind: str
    max_event_age: Duration = 600

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """What is recorded of it, but for `max_event_age`."""


Document = TypeVar("Document", bound=Payload)


class Entries:
    """Reads documents whose entries stand in one list, by the name that the document has for it, such as `ruleSets`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read(
        self,
        text: bytes,
        file: str,
        form: type[RulesForm],
        model: type[Document],
        problems: Callable[[Document], Iterable[str]],
    ) -> Document:
        """The document in a text, as it is recorded; `file` is the name by which the user gave it.

        It has the `form` in YAML, and is recorded as the `model`; `problems` are those that no form shows.

        Raises:
            RequestError: it is too large, no YAML, or something is wrong with it.
        """
        if len(text) > DOCUMENT_BYTES_MAX:
            raise RequestError(
                f"{file} has {len(text):,} bytes, and a document has at most {DOCUMENT_BYTES_MAX:,}", CORRECT
            )
        raw = _loaded(text, file)
        try:
            document = model.model_validate(_recorded(form.model_validate(raw), file))
        except ValidationError as error:
            raise _refused(file, self._problems_of(error, raw)) from error
        if found := list(problems(document)):
            raise _refused(file, found)
        return document

    def _problems_of(self, error: ValidationError, raw: object) -> list[str]:
        """What is wrong, each with its place and the name of the entry that it is in."""
        return [
            f"{self._place(problem['loc'], raw)}: {_what(problem)}."
            for problem in error.errors(include_url=False, include_input=False)
        ]

    def _place(self, loc: tuple[int | str, ...], raw: object) -> str:
        parts = {to_snake(self._name): self._name, self._name.lower(): self._name}
        text = "".join(f"[{one}]" if isinstance(one, int) else f".{parts.get(one, one)}" for one in loc)
        if len(loc) < 2 or not isinstance(loc[1], int) or not isinstance(raw, Mapping):
            return text.removeprefix(".") or "the document"
        entries = raw.get(self._name)
        found = entries[loc[1]] if isinstance(entries, list) and loc[1] < len(entries) else None
        name = found.get("name") if isinstance(found, Mapping) else None
        return text.removeprefix(".") + (f" of {name!r}" if isinstance(name, str) else "")


def _what(problem: ErrorDetails) -> str:
    """What is wrong, without the names of our forms."""
    return "it is a mapping" if problem["type"] == "model_type" else problem["msg"].removeprefix("Value error, ")


def _recorded(form: RulesForm, file: str) -> dict[str, Any]:
    """The version of a document is the SHA-256 of the canonical form of its content, whatever its file is called."""
    content = {**form.content(), "max_event_age_s": form.max_event_age}
    return {**content, "digest": hashlib.sha256(json_text(content).encode()).hexdigest(), "file": file}


def _loaded(text: bytes, file: str) -> object:
    try:
        return yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 - it is a safe loader that refuses repeated keys
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise RequestError(f"{file} is no YAML: {error.problem}{where}", CORRECT) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RequestError(f"{file} is no YAML: {error}", CORRECT) from error


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a mapping that has a key twice, of which YAML would silently drop one, and what no event may hold."""

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:  # noqa: ANN401 - any scalar
        """A scalar, if the ledger can keep it."""
        value = super().construct_scalar(node)
        if isinstance(value, str) and "\0" in value:
            raise yaml.constructor.ConstructorError(None, None, "a text holds a NUL character", node.start_mark)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, if each of its keys is there once."""
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if isinstance(name, str) and name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} is there twice", key.start_mark)
            seen.add(name if isinstance(name, str) else None)
        return super().construct_mapping(node, deep)


def _text(loader: yaml.SafeLoader, node: yaml.Node) -> str:
    return str(loader.construct_yaml_str(node))


for _tag in ("value", "merge"):  # Of YAML 1.1, for a text that is `=` or `<<`: others write it without quotes.
    _UniqueKeys.add_constructor(f"tag:yaml.org,2002:{_tag}", _text)


def _refused(file: str, found: list[str]) -> RequestError:
    """The error about a file, with the first problems in it."""
    shown = " ".join(found[:PROBLEMS_SHOWN_MAX])
    more = f" There are {len(found) - PROBLEMS_SHOWN_MAX} more." if len(found) > PROBLEMS_SHOWN_MAX else ""
    return RequestError(f"{file}: {shown}{more}", CORRECT)
