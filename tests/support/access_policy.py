"""The policy that restricts access to the inventory, its expressions evaluated as an API server would."""

from functools import cache
from importlib.resources import files
from typing import Any

import cel
import yaml

from support.admission import Json

EDITORS = ("devs", "system:authenticated")


@cache
def manifest(name: str) -> Json:
    """A manifest of the package."""
    read: Json = yaml.safe_load((files("gpuledger.schemas") / "manifests" / f"{name}.yaml").read_text())
    return read


class Variables(dict[str, Any]):
    """The policy's variables. Each is evaluated when it stands in an expression that is asked for, as a server does."""

    def __init__(self, inputs: Json) -> None:
        super().__init__()
        for variable in manifest("restricted-access-policy")["spec"]["variables"]:
            if self._is_needed(variable["name"], inputs):
                self[variable["name"]] = value(variable["expression"], inputs | {"variables": dict(self)})

    @staticmethod
    def _is_needed(name: str, inputs: Json) -> bool:
        """Only changes get as far as comparing objects."""
        return not name.startswith("keeps") or inputs["request"]["operation"] == "UPDATE"


def value(expression: str, inputs: Json) -> Any:
    """What an expression gives."""
    return _program(expression).execute(inputs)


@cache
def _program(expression: str) -> Any:
    return cel.compile(expression)


def allows(
    old: Json | None, new: Json | None, *, groups: tuple[str, ...] = EDITORS, plural: str = "gpudevices", sub: str = ""
) -> bool:
    """Whether the policy lets members of these groups make this change."""
    operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
    request: Json = {"operation": operation, "resource": {"resource": plural}, "userInfo": {"groups": list(groups)}}
    if sub:
        request["subResource"] = sub
    inputs = {"request": request, "object": new, "oldObject": old}
    (validation,) = manifest("restricted-access-policy")["spec"]["validations"]
    found = value(validation["expression"], inputs | {"variables": dict(Variables(inputs))})
    assert isinstance(found, bool)
    return found
