"""Settings of the export of events over HTTP, from one variable of the environment. Names end with units."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args
from urllib.parse import SplitResult, urlsplit

from gpuledger.events.catalogue import registry
from gpuledger.events.position import is_typed
from gpuledger.runtime.settings import SettingsError

EXPORT: Final = "GPULEDGER_EXPORT"
"""Where and how events are exported: a JSON object with the fields of `ExportSettings`. Without it nothing is."""

HEAD: Final = "head"
START: Final = "start"

SELECTIONS_MAX: Final = 64
CONDITIONS_MAX: Final = 16
VALUES_MAX: Final = 64
BATCH_EVENTS_MAX: Final = 500
METADATA_MAX: Final = 32

HealthShape = Literal["gpuledger", "nvsentinel"]
OnRefusal = Literal["record", "stop"]
Scalar = str | int | float | bool | None


def begin_time(text: str) -> datetime | None:
    """The time in UTC where a beginning is one; None where it is none, or has no zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if time.tzinfo is None else time.astimezone(UTC)


class Selection(NamedTuple):
    """Selects events: of a type (`node.health-reported`, or `node.*` for a whole aggregate) whose data fit.

    `where` has by field of the data, such as `fatal` or `entities.type`, the values that it may have.
    """

    type: str
    where: Mapping[str, tuple[Scalar, ...]] = {}


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """Where events are exported to, and which of them.

    `select` are selections of which any one is enough; none at all select every event. The first start begins at
    `begin`: `head`, `start`, a position such as `1/1500`, or an RFC 3339 time. `on_refusal` says what becomes of an
    event that the endpoint refuses for good: it is recorded as a dead letter, or the export stops there. Up to
    `batch_events` events are sent in one request; with 1, each in a request of its own, in structured mode.
    `health_shape` is the shape of `node.health-reported`, and `metadata` what the shape of NVSentinel has beside it.
    `token` is a file with a bearer token, `ca` one with the authorities to trust in place of the system's;
    `certificate` and `key` go together.
    """

    url: str
    select: tuple[Selection, ...] = ()
    begin: str = HEAD
    on_refusal: OnRefusal = "record"
    batch_events: int = 1
    health_shape: HealthShape = "gpuledger"
    metadata: Mapping[str, str] = field(default_factory=dict)
    token: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def endpoint(self) -> str:
        """The endpoint for people: without path and query, which may hold secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


class _InvalidError(ValueError):
    """What is wrong, beginning with the name of the field."""


def read_export_settings(environ: Mapping[str, str]) -> ExportSettings | None:
    """The settings in the variable's JSON object; None: nothing is exported.

    Raises:
        SettingsError: they cannot be used; the message names the field and says what it may be.
    """
    text = environ.get(EXPORT)
    if not text:
        return None
    try:
        return _settings(json.loads(text))
    except json.JSONDecodeError as error:
        raise SettingsError(f"{EXPORT} is no JSON: {error}.") from error
    except _InvalidError as error:
        raise SettingsError(f"{EXPORT} cannot be used: {error}.") from error


def _settings(given: object) -> ExportSettings:
    names = [one.name for one in fields(ExportSettings)]
    if not isinstance(given, dict) or (unknown := sorted(given.keys() - set(names))):
        what = f"{unknown[0]!r} is no field of it" if isinstance(given, dict) else "it is no JSON object"
        raise _InvalidError(f"{what}; its fields are {', '.join(names)}")
    settings = ExportSettings(
        _url(given.get("url")),
        _selections(given.get("select", [])),
        _begin(given.get("begin", HEAD)),
        _choice(given, "on_refusal", get_args(OnRefusal)),
        _batch_events(given.get("batch_events", 1)),
        _choice(given, "health_shape", get_args(HealthShape)),
        _metadata(given.get("metadata", {})),
        *(_file(given, name) for name in ("token", "ca", "certificate", "key")),
    )
    _check_login(settings)
    return settings


def _url(given: object) -> str:
    parts = urlsplit(given) if isinstance(given, str) else SplitResult("", "", "", "", "")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise _InvalidError("url has to be a URL such as https://events.example/gpuledger")
    if parts.username is not None or parts.fragment:
        raise _InvalidError("url must hold no login and no fragment; put a token into the file that token names")
    return parts.geturl()


def _check_login(settings: ExportSettings) -> None:
    parts = urlsplit(settings.url)
    if (settings.certificate is None) != (settings.key is None):
        raise _InvalidError("certificate and key belong together; set both or neither")
    if parts.scheme == "https":
        return
    if settings.token is not None and not _is_loopback(parts.hostname or ""):
        raise _InvalidError("a token needs https, or an endpoint on this machine; everybody on the way reads it")
    if settings.ca is not None or settings.certificate is not None:
        raise _InvalidError("ca and certificate need https, and url begins with http:")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _selections(given: object) -> tuple[Selection, ...]:
    if not isinstance(given, list) or len(given) > SELECTIONS_MAX:
        raise _InvalidError(f"select has to be a list of at most {SELECTIONS_MAX} objects with type and where")
    return tuple(_selection(one, f"select[{index}]") for index, one in enumerate(given))


def _selection(given: object, place: str) -> Selection:
    if not isinstance(given, dict) or not given.keys() <= {"type", "where"}:
        raise _InvalidError(f"{place} has to be an object with type, and where if need be")
    names = sorted({f"{one.AGGREGATE}.{one.EVENT}" for one in registry.models()})
    chosen = given.get("type")
    if chosen not in names and chosen not in {f"{name.partition('.')[0]}.*" for name in names}:
        raise _InvalidError(f"{place}.type is {chosen!r}; it is node.* or the like, or one of {', '.join(names)}")
    where = given.get("where", {})
    if not isinstance(where, dict) or len(where) > CONDITIONS_MAX:
        raise _InvalidError(f"{place}.where has to be an object of at most {CONDITIONS_MAX} fields")
    return Selection(str(chosen), {name: _values(value, f"{place}.where.{name}") for name, value in where.items()})


def _values(given: object, place: str) -> tuple[Scalar, ...]:
    values = given if isinstance(given, list) else [given]
    if not 0 < len(values) <= VALUES_MAX or not all(isinstance(one, Scalar) for one in values):
        raise _InvalidError(f"{place} has to be a text, number, true or false, or 1 to {VALUES_MAX} of them")
    return tuple(values)


def _begin(given: object) -> str:
    if isinstance(given, str) and (given in {HEAD, START} or is_typed(given) or begin_time(given) is not None):
        return given
    raise _InvalidError(
        f"begin is {given!r}; it is {HEAD}, {START}, a position such as 1/1500, or a time such as 2026-03-01T00:00:00Z"
    )


def _choice(given: Mapping[str, Any], name: str, choices: tuple[Any, ...]) -> Any:  # noqa: ANN401 - one of the choices
    value = given.get(name, choices[0])
    if value not in choices:
        raise _InvalidError(f"{name} is {value!r}; it is {' or '.join(choices)}")
    return value


def _batch_events(given: object) -> int:
    if type(given) is not int or not 1 <= given <= BATCH_EVENTS_MAX:
        raise _InvalidError(f"batch_events is {given!r}; it is a number from 1 to {BATCH_EVENTS_MAX}")
    return given


def _metadata(given: object) -> dict[str, str]:
    if not isinstance(given, dict) or len(given) > METADATA_MAX:
        raise _InvalidError(f"metadata has to be an object of at most {METADATA_MAX} texts")
    if not all(isinstance(value, str) for value in given.values()):
        raise _InvalidError("metadata has to be an object of texts")
    return dict(given)


def _file(given: Mapping[str, Any], name: str) -> Path | None:
    text = given.get(name)
    if not text:
        return None
    if not isinstance(text, str) or not Path(text).is_file():
        raise _InvalidError(f"{name} names {text}, which is not a file; mount it there, or leave it out")
    return Path(text)
