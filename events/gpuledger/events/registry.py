"""Which event types exist, in which version, who may publish them, and how old data becomes new.

Recorded events are never rewritten: an upcaster turns the data of version N into that of version N+1 on reading, and
the chain must have no holes.
"""

import re
from collections.abc import Callable, Iterator, Set
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from gpuledger.events.errors import CatalogueError, PayloadError, UnknownEventTypeError
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import PublishRule

PREFIX = "io.gpuledger."
_TYPE = re.compile(r"io\.gpuledger\.([a-z][a-z-]*)\.([a-z][a-z-]*)\.v([1-9][0-9]{0,3})")
_WORD = re.compile(r"[a-z][a-z-]*")

Data = dict[str, Any]
Upcaster = Callable[[Data], Data]
P = TypeVar("P", bound=Payload)


class TypeName(NamedTuple):
    """The parts of `io.gpuledger.<aggregate>.<event>.v<N>`."""

    aggregate: str
    event: str
    version: int

    def __str__(self) -> str:
        return f"{PREFIX}{self.aggregate}.{self.event}.v{self.version}"


def parse_type(text: str) -> TypeName:
    """The parts of an event type.

    Raises:
        UnknownEventTypeError: it does not have this form.
    """
    match = _TYPE.fullmatch(text)
    if match is None:
        raise UnknownEventTypeError(f"The type {text!r} is not `{PREFIX}<aggregate>.<event>.v<N>`.")
    return TypeName(match[1], match[2], int(match[3]))


class Registry:
    """The event types that one build knows."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], type[Payload]] = {}
        self._upcasters: dict[TypeName, Upcaster] = {}
        self._decoders: dict[str, Callable[[Any], Payload]] = {}
        self._introduced: set[str] = set()

    def event(
        self, aggregate: str, event: str, rule: PublishRule, *, version: int = 1, introduced: bool = False
    ) -> Callable[[type[P]], type[P]]:
        """Register a payload class as an event type (a class decorator).

        An `introduced` type, or version of it, came after the first release. An event of it that the edge publishes
        counts as unknown, in every build and for ever, unless `rule.enforced` brought the type into force before it.

        Raises:
            CatalogueError: the event has a model already, or a name is not lower-case words with hyphens.
        """

        def register(model: type[P]) -> type[P]:
            if (aggregate, event) in self._models:
                raise CatalogueError(f"The event {aggregate}.{event} is registered twice.")
            if not (_WORD.fullmatch(aggregate) and _WORD.fullmatch(event)):
                raise CatalogueError(f"The event name {aggregate}.{event} is not lower-case words with hyphens.")
            model.AGGREGATE, model.EVENT, model.VERSION = aggregate, event, version
            model.PUBLISH_RULE = rule
            model.TYPE = str(TypeName(aggregate, event, version))
            self._models[aggregate, event] = model
            if introduced:
                self._introduced.add(model.TYPE)
            return model

        return register

    def upcaster(
        self, aggregate: str, event: str, *, version: int, introduced: bool = False
    ) -> Callable[[Upcaster], Upcaster]:
        """Register how data of `version` becomes data of the version after it (a function decorator).

        `introduced` stays what it was when `version` was the newest one.
        """

        def register(upcast: Upcaster) -> Upcaster:
            name = TypeName(aggregate, event, version)
            if name in self._upcasters:
                raise CatalogueError(f"{name} has two upcasters.")
            self._upcasters[name] = upcast
            if introduced:
                self._introduced.add(str(name))
            return upcast

        return register

    def check(self) -> None:
        """Prove that every older version can be read.

        Raises:
            CatalogueError: a version before a type's own has no upcaster.
        """
        for (aggregate, event), model in self._models.items():
            for version in range(1, model.VERSION):
                if TypeName(aggregate, event, version) not in self._upcasters:
                    raise CatalogueError(f"{TypeName(aggregate, event, version)} has no upcaster.")

    def models(self) -> Iterator[type[Payload]]:
        """Every registered payload class, ordered by type."""
        return iter(sorted(self._models.values(), key=lambda model: model.TYPE))

    def knows(self, event_type: str) -> bool:
        """Whether this build can decode the type."""
        try:
            self._decoder(event_type)
        except UnknownEventTypeError:
            return False
        return True

    @property
    def introduced(self) -> Set[str]:
        """The types that came after the first release."""
        return self._introduced

    def rule_of(self, name: TypeName) -> PublishRule:
        """Who may publish events of this type."""
        return self._models[name.aggregate, name.event].PUBLISH_RULE

    def decode(self, event_type: str, data: object) -> Payload:
        """The payload of an event, converted to the version of this build.

        Raises:
            UnknownEventTypeError: this build does not know the type or its version.
            PayloadError: the data does not fit.
        """
        decoder = self._decoders.get(event_type) or self._decoder(event_type)
        try:
            return decoder(data)
        except ValidationError as error:
            raise PayloadError(f"The data does not fit {event_type}: {_first_problem(error)}") from error

    def _decoder(self, event_type: str) -> Callable[[Any], Payload]:
        name = parse_type(event_type)
        model = self._models.get((name.aggregate, name.event))
        if model is None:
            raise UnknownEventTypeError(f"This build does not know the event type {event_type}.")
        if name.version > model.VERSION:
            raise UnknownEventTypeError(
                f"This build knows {model.TYPE}, not {event_type}; upgrade the services before the agents."
            )
        chain = [self._upcasters[name._replace(version=version)] for version in range(name.version, model.VERSION)]
        decoder = self._decoders[event_type] = _decoder(model, chain)
        return decoder


def _decoder(model: type[Payload], chain: list[Upcaster]) -> Callable[[Any], Payload]:
    validate: Callable[[Any], Payload] = model.__pydantic_validator__.validate_python
    if not chain:
        return validate

    def decode(data: Any) -> Payload:  # noqa: ANN401 - data is whatever JSON held
        for upcast in chain:
            data = _upcast(upcast, data, model)
        return validate(data)

    return decode


def _upcast(upcast: Upcaster, data: Data, model: type[Payload]) -> Data:
    try:
        return upcast(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PayloadError(f"Older data cannot be brought to {model.TYPE}: {error!r}.") from error


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"]) or "data"
    return f"{where}: {problem['msg']}."


registry = Registry()
"""The product's own catalogue; `gpuledger.events.catalogue` fills it."""
