"""Checks the string formats of custom resources that Kubernetes checks, except some rare ones, which it ignores.

Names of formats are compared without dashes: `date-time` and `datetime` are the same to Kubernetes.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date, datetime
from urllib.parse import urlsplit

from gpuledger.edge.kube.schema.object_names import dns_label_problem, dns_subdomain_problem

_HEX = r"[0-9a-f]"
_DATE_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_GO_DURATION = re.compile(r"[+-]?(?:0|(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
_LONG_DURATION = re.compile(
    r"\s*\d+\s*(?:d|days?|w|wks?|weeks?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?"
    r"|ms|millis?|milliseconds?|us|µs|micros?|microseconds?|ns|nanos?|nanoseconds?)\s*",
    re.ASCII,
)
_DURATION_PARTS = re.compile(rf"(?:{_LONG_DURATION.pattern})+", re.ASCII)
QUANTITY = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?", re.ASCII)
"""A quantity such as `10Gi`; the suffix is binary, decimal or an exponent."""


def format_problem(format_: str, value: str) -> bool:
    """Whether a string violates its format; unknown formats accept everything."""
    check = _CHECKS.get(format_.replace("-", ""))
    return check is not None and not check(value)


def is_date_time(value: str) -> bool:
    """RFC 3339, with any number of fraction digits."""
    found = _DATE_TIME.fullmatch(value)
    if not found:
        return False
    year, month, day, hour, minute, second = (int(part) for part in found.groups())
    try:
        datetime(year, month, day, hour, minute, min(second, 59))  # noqa: DTZ001  Only its fields matter.
    except ValueError:
        return False
    return second < 60


def is_date(value: str) -> bool:
    """A full date such as 2024-02-29."""
    try:
        return re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII) is not None and bool(date.fromisoformat(value))
    except ValueError:
        return False


def is_duration(value: str) -> bool:
    """A duration in Go's notation (`1h30m`), or in words such as `3 days`."""
    return _GO_DURATION.fullmatch(value) is not None or _DURATION_PARTS.fullmatch(value) is not None


def is_uri(value: str) -> bool:
    """An absolute URI or an absolute path, as in a request line."""
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        return False
    if any(char in value for char in ' \t\r\n\x7f"<>`'):
        return False
    return value.startswith("/") or bool(parts.scheme and (parts.netloc or parts.path or port))


def is_ip(value: str, version: int) -> bool:
    """An address of one IP version, without a zone."""
    try:
        return "%" not in value and ipaddress.ip_address(value).version == version
    except ValueError:
        return False


def is_cidr(value: str) -> bool:
    """An address with a prefix length; host bits may be set."""
    _, slash, length = value.partition("/")
    try:
        return bool(slash) and length.isdecimal() and bool(ipaddress.ip_interface(value))
    except ValueError:
        return False


def _is_byte(value: str) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _matches(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII | flags)
    return lambda value: compiled.fullmatch(value) is not None


def _uuid(third: str, fourth: str) -> Callable[[str], bool]:
    return _matches(rf"{_HEX}{{8}}-?{_HEX}{{4}}-?{third}-?{fourth}-?{_HEX}{{12}}", re.IGNORECASE)


_CHECKS: dict[str, Callable[[str], bool]] = {
    "datetime": is_date_time,
    "date": is_date,
    "duration": is_duration,
    "uri": is_uri,
    "ipv4": lambda value: is_ip(value, 4),
    "ipv6": lambda value: is_ip(value, 6),
    "cidr": is_cidr,
    "mac": _matches(
        r"([0-9a-fA-F]{2}([:-])([0-9a-fA-F]{2}\2){4,18}[0-9a-fA-F]{2})|([0-9a-fA-F]{4}\.){2,9}[0-9a-fA-F]{4}"
    ),
    "uuid": _uuid(rf"{_HEX}{{4}}", rf"{_HEX}{{4}}"),
    "uuid3": _uuid(rf"3{_HEX}{{3}}", rf"{_HEX}{{4}}"),
    "uuid4": _uuid(rf"4{_HEX}{{3}}", rf"[89ab]{_HEX}{{3}}"),
    "uuid5": _uuid(rf"5{_HEX}{{3}}", rf"[89ab]{_HEX}{{3}}"),
    "byte": _is_byte,
    "quantity": lambda value: QUANTITY.fullmatch(value) is not None,
    "k8sshortname": lambda value: dns_label_problem(value) is None,
    "k8slongname": lambda value: dns_subdomain_problem(value) is None,
}
