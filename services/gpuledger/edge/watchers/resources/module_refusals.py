"""What a ModuleConfig sets in vain: why, and what is in force instead, as an event can hold it. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.edge.watchers.fields import shown
from gpuledger.events.payload import NAME_LENGTH_MAX, truncated
from gpuledger.events.settings import NOT_IN_FORCE_MAX

HIGH_AVAILABILITY: Final = "highAvailability"
CHART_DECIDES: Final = "the chart's number of pods"


class Refused(NamedTuple):
    """A setting that is not in force: its path, why, and what is in force instead; nothing where that is empty."""

    field: str
    problem: str
    in_force: str = ""


class Installation(NamedTuple):
    """The settings as the installation gives them, and whether it lets us scale the Deployments that we run in."""

    settings: Mapping[str, Any]
    is_scaled: bool = False


def no_object(given: object) -> Iterator[Refused]:
    """The problem of settings that are no object at all."""
    if given is not None and not isinstance(given, Mapping):
        yield Refused("settings", f"settings is {shown(given)}, and not an object", "every default")


def not_scaled(installed: Installation, given: Mapping[str, Any]) -> Iterator[Refused]:
    """High availability is how many pods there are, which somebody else decides where no chart installed us."""
    available = given.get(HIGH_AVAILABILITY)
    if (
        isinstance(available, bool)
        and not installed.is_scaled
        and available != installed.settings.get(HIGH_AVAILABILITY)
    ):
        how = "these services run in no Deployment of the chart, and cannot change how many of them there are"
        yield Refused(HIGH_AVAILABILITY, f"{HIGH_AVAILABILITY} is {as_json(available)}, but {how}", "what runs now")


def recorded(refused: Iterable[Refused]) -> list[dict[str, str]]:
    """As an event holds them: as many as fit, of which the last one then counts the others."""
    found = list(refused)
    if len(found) > NOT_IN_FORCE_MAX:
        kept = NOT_IN_FORCE_MAX - 1
        more = f"{len(found) - kept} more settings cannot be used; the log of the services names them"
        found = [*found[:kept], Refused("settings", more)]
    return list(map(_recorded, found))


def _recorded(one: Refused) -> dict[str, str]:
    field, problem, in_force = (part.replace("\0", "") for part in one)
    return {"field": field[:NAME_LENGTH_MAX] or "-", "problem": truncated(problem), "in_force": truncated(in_force)}


def as_json(value: object) -> str:
    """A value as a manifest gives it."""
    return orjson.dumps(value).decode()
