"""Templates of objects: which placeholders they may have, and the object that one gives. Pure.

A placeholder is written `${node}`, in any text of the template; `$$` is a dollar sign. A template is checked when it is
configured, so that one in force always gives an object.
"""

import re
from collections.abc import Iterator, Mapping
from string import Template
from typing import Any, Final

from gpuledger.events.device import UUID_LENGTH_MAX
from gpuledger.events.payload import NAME_LENGTH_MAX

PLACEHOLDERS: Final[Mapping[str, str]] = {
    "node": "the node's name",
    "nodeUID": "the uid of the Node",
    "device": "the card's UUID, where the remedy is for one card",
    "fault": "the id of the first report of the fault",
    "action": "the recommended action",
    "remedy": "the remedy's name",
}
"""What stands for what."""

FAULT_LENGTH_MAX: Final = 128
"""How much of the id of a report stands in an object; those of our own gateways are shorter."""

_ESCAPED: Final = "\x01"
"""A character that JSON writes in six, as what others report may have."""

LONGEST: Final[Mapping[str, str]] = {
    "node": "x" * NAME_LENGTH_MAX,
    "nodeUID": _ESCAPED * NAME_LENGTH_MAX,
    "device": "x" * UUID_LENGTH_MAX,
    "fault": _ESCAPED * FAULT_LENGTH_MAX,
    "action": _ESCAPED * NAME_LENGTH_MAX,
}
"""The values that take the most room in an object; that of `remedy` is its name."""

ANNOTATION: Final = "gpuledger.io/remediation"
"""The annotation of our objects: the id of the remediation."""

_PLAIN: Final = "$ is followed by a placeholder such as ${node}; $$ is a dollar sign"
_OF_DEVICE: Final = "device"
_BRACES = re.compile(r"\$\{([^}]*)\}")


def problems_of(template: Mapping[str, Any], *, has_device: bool) -> Iterator[str]:
    """What is wrong with a template, each with its place in it."""
    for place, text in _texts(template, ""):
        for match in Template.pattern.finditer(text):
            name = match["named"] or match["braced"]
            if match["invalid"] is not None:
                braces = _BRACES.match(text, match.start())
                what = f"${{{braces[1]}}}" if braces else None
                yield f"{place}: {f'there is no placeholder {what}; {_choices()}' if what else _PLAIN}."
            elif name is not None and name not in PLACEHOLDERS:
                yield f"{place}: there is no placeholder ${{{name}}}; {_choices()}."
            elif name == _OF_DEVICE and not has_device:
                yield f"{place}: ${{device}} needs scope Device."


def rendered(template: Any, values: Mapping[str, str]) -> Any:  # noqa: ANN401 - any JSON
    """A template with values in place of its placeholders, in texts alone."""
    if isinstance(template, str):
        return Template(template).safe_substitute(values)
    if isinstance(template, Mapping):
        return {key: rendered(value, values) for key, value in template.items()}
    return [rendered(one, values) for one in template] if isinstance(template, list) else template


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        yield place.removeprefix("."), value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _texts(one, f"{place}.{key}")
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _texts(one, f"{place}[{at}]")


def _choices() -> str:
    return f"choose from {', '.join(f'${{{name}}}' for name in PLACEHOLDERS)}"
