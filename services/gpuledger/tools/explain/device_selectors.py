"""Evaluates CEL selectors of DeviceClasses and requests on devices as the ledger has them.

Selectors see a device as Kubernetes shows it: its driver, attributes and capacities by domain, and whether it can be
shared. Names without a domain are in the driver's; a domain without attributes is empty.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import cel

from gpuledger.domain.cel_source import rewritten, tokens_of
from gpuledger.domain.dra.candidates import SelectorInput
from gpuledger.edge.kube.schema.cel_functions import FUNCTIONS
from gpuledger.edge.kube.schema.expressions import FAILURES, Expression, failure_text, first_sentence
from gpuledger.events.slice import Version

COMPILED_MAX: Final = 512
"""How many expressions are remembered."""

_BY_DOMAIN = ("attributes", "capacity")
_LOOKUP = "ofDomain"


def selects(expression: str, offered: SelectorInput) -> bool | str:
    """Whether an expression selects a device, or a text why it could not be evaluated."""
    compiled = _compiled(expression)
    if isinstance(compiled, str):
        return compiled
    try:
        found = compiled.value({"device": _seen(offered)})
    except FAILURES as error:
        return failure_text(error)
    return found if isinstance(found, bool) else f"it is {found!r}, neither true nor false"


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(expression: str) -> Expression | str:
    try:
        program = cel.compile(rewritten(_with_lookups(expression)))
    except ValueError as error:
        return f"it does not compile: {first_sentence(error)}"
    names = set(program.functions())
    needed = {name: one for name, one in FUNCTIONS.items() if name.rpartition(".")[2] in names}
    return Expression(program, {**needed, _LOOKUP: lambda domains, name: domains.get(name, {})})


def _with_lookups(expression: str) -> str:
    """The expression with `attributes[x]` as a function that answers for unknown domains too."""
    tokens = tokens_of(expression)
    for at in range(len(tokens) - 3, 0, -1):
        if tokens[at] in _BY_DOMAIN and tokens[at - 1] == "." and tokens[at + 1] == "[":
            end = _closing(tokens, at + 1)
            tokens[at + 1 : end + 1] = [".", _LOOKUP, "(", *tokens[at + 2 : end], ")"]
    return " ".join(tokens)


def _closing(tokens: list[str], at: int) -> int:
    depth = 0
    for backend in range(at, len(tokens)):
        depth += (tokens[backend] in {"[", "[?"}) - (tokens[backend] == "]")
        if not depth:
            return backend
    return len(tokens) - 1


def _seen(offered: SelectorInput) -> dict[str, Any]:
    device, driver = offered.payload, offered.driver
    capacity = {name: FUNCTIONS["quantity"](one.value) for name, one in device.capacity.items()}
    return {
        "driver": driver,
        "attributes": _by_domain({name: _value(one) for name, one in device.attributes.items()}, driver),
        "capacity": _by_domain(capacity, driver),
        "allowMultipleAllocations": device.shareable,
    }


def _value(attribute: object) -> object:
    return FUNCTIONS["semver"](attribute.version) if isinstance(attribute, Version) else attribute


def _by_domain(values: Mapping[str, object], driver: str) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        domain, slash, bare = name.partition("/")
        found.setdefault(domain if slash else driver, {})[bare if slash else name] = value
    return found
