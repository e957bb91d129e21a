"""The functions that Kubernetes adds to CEL, and those of CEL's own libraries that the CEL library lacks.

Quantities, URLs, addresses, versions and named formats have no type in the library: they are maps with one key that
tells what they are, in a normal form, so that `==` compares them. Functions never change their arguments.
"""

import ipaddress
import re
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import cel
from cel.stdlib import STDLIB_FUNCTIONS

from gpuledger.edge.kube.schema.formats import QUANTITY, format_problem, is_uri
from gpuledger.edge.kube.schema.object_names import dns_label_problem, dns_subdomain_problem, qualified_name_problem
from gpuledger.edge.kube.schema.patterns import compiled

_QUANTITY, _URL, _IP, _CIDR, _SEMVER, _FORMAT = "#quantity", "#url", "#ip", "#cidr", "#semver", "#format"
_BINARY: dict[str, int] = {unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SEMVER_PATTERN = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
_INT64 = 2**63

Tagged = dict[str, Any]


def parsed_quantity(text: str) -> Fraction:
    """The number that a quantity such as `1500m` or `10Gi` is; raises ValueError where it is none."""
    if not QUANTITY.fullmatch(text):
        raise ValueError(f"{text!r} is no quantity")
    number, suffix = cast("tuple[str, str]", re.fullmatch(r"([+-]?[\d.]+)(.*)", text).groups())  # type: ignore[union-attr]
    if suffix in _BINARY:
        return Fraction(number) * _BINARY[suffix]
    power = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return Fraction(number) * Fraction(f"1e{power}")


def _quantity(text: Any) -> Tagged:
    return {_QUANTITY: str(parsed_quantity(text))}


def _amount(value: Any) -> Fraction:
    return Fraction(value[_QUANTITY]) if isinstance(value, dict) else Fraction(value)


def _is(make: Callable[..., Any]) -> Callable[..., bool]:
    def check(*arguments: Any) -> bool:
        try:
            make(*arguments)
        except (ValueError, TypeError, KeyError):
            return False
        return True

    return check


def _order(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if _QUANTITY in value:
        return Fraction(value[_QUANTITY])
    return _semver_order(value[_SEMVER])


def _compare(one: Any, other: Any) -> int:
    first, second = _order(one), _order(other)
    return int(first > second) - int(first < second)


def _is_integer(value: Any) -> bool:
    return isinstance(value, dict) and _amount(value).denominator == 1 and abs(_amount(value)) < _INT64


def _as_integer(value: Any) -> int:
    if not _is_integer(value):
        raise ValueError("the quantity is no integer")
    return int(_amount(value))


def _sign(value: Any) -> int:
    return (_amount(value) > 0) - (_amount(value) < 0)


def _plus(value: Any, other: Any) -> Tagged:
    return {_QUANTITY: str(_amount(value) + _amount(other))}


def _minus(value: Any, other: Any) -> Tagged:
    return {_QUANTITY: str(_amount(value) - _amount(other))}


def _url(text: str) -> Tagged:
    if not is_uri(text):
        raise ValueError(f"{text!r} is no URL")
    return {_URL: text}


def _url_query(url: Tagged) -> dict[str, list[str]]:
    return parse_qs(urlsplit(url[_URL]).query, keep_blank_values=True)


def _url_host(url: Tagged) -> str:
    return urlsplit(url[_URL]).netloc.rpartition("@")[2]


def _ip(text: Any) -> Tagged:
    if isinstance(text, dict):
        return {_IP: text[_CIDR].partition("/")[0]}
    if "%" in text or text.lower().startswith("::ffff:"):
        raise ValueError(f"{text!r} is no address that Kubernetes takes")
    return {_IP: str(ipaddress.ip_address(text))}


def _cidr(text: str) -> Tagged:
    if "%" in text or not text.partition("/")[2].isdecimal():
        raise ValueError(f"{text!r} is no CIDR")
    return {_CIDR: ipaddress.ip_interface(text).with_prefixlen}


def _network(cidr: Any) -> Any:
    return ipaddress.ip_network((cidr if isinstance(cidr, dict) else _cidr(cidr))[_CIDR], strict=False)


def _address(value: Any) -> Any:
    return ipaddress.ip_address((value if isinstance(value, dict) else _ip(value))[_IP])


def _family(value: Tagged) -> int:
    return int(_address(value).version if _IP in value else _network(value).version)


def _contains_ip(cidr: Tagged, ip: Any) -> bool:
    return _address(ip) in _network(cidr)


def _contains_cidr(cidr: Tagged, other: Any) -> bool:
    outer, inner = _network(cidr), _network(other)
    return bool(outer.version == inner.version and inner.subnet_of(outer))


def _masked(cidr: Tagged) -> Tagged:
    return {_CIDR: str(_network(cidr))}


def _prefix_length(cidr: Tagged) -> int:
    return int(_network(cidr).prefixlen)


def _is_canonical(text: str) -> bool:
    return str(ipaddress.ip_address(text)) == text


def _ip_is(what: str) -> Callable[[Tagged], bool]:
    return lambda ip: bool(getattr(_address(ip), what))


def _is_link_local_multicast(ip: Tagged) -> bool:
    networks = ("224.0.0.0/24", "ff02::/16")
    return any(_address(ip) in ipaddress.ip_network(one) for one in networks)


def _is_global_unicast(ip: Tagged) -> bool:
    address = _address(ip)
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)


def _text_format(text: str, values: list[Any]) -> str:
    rest = iter(values)

    def one(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        value = next(rest)
        if found[2] in "sd":
            return str(value).lower() if isinstance(value, bool) else str(value)
        return f"{value:{found[1]}{found[2]}}"

    return re.sub(r"%(\.\d+)?([sdfebxXo])|%%", one, text)


def _semver(text: str, normalize: bool = False) -> Tagged:
    bare = text
    if normalize:
        bare = text.removeprefix("v")
        bare += ".0" * max(0, 2 - bare.partition("-")[0].count("."))
    if not _SEMVER_PATTERN.fullmatch(bare):
        raise ValueError(f"{text!r} is no semantic version")
    return {_SEMVER: bare}


def _semver_order(text: str) -> tuple[Any, ...]:
    major, minor, patch, before = _SEMVER_PATTERN.fullmatch(text).groups()  # type: ignore[union-attr]
    parts = [(0, int(one), "") if one.isdecimal() else (1, 0, one) for one in (before or "").split(".") if before]
    return (int(major), int(minor), int(patch), not before, parts)


def _semver_part(index: int) -> Callable[[Tagged], int]:
    return lambda version: int(_semver_order(version[_SEMVER])[index])


def _find(text: str, pattern: str) -> str:
    found = compiled(pattern).search(text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [one[0] for one in compiled(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _index_of(value: Any, item: Any, *rest: int) -> int:
    if isinstance(value, str):
        return int(STDLIB_FUNCTIONS["indexOf"](value, item, *rest))
    return value.index(item) if item in value else -1


def _last_index_of(value: Any, item: Any, *rest: int) -> int:
    if isinstance(value, str):
        return int(STDLIB_FUNCTIONS["lastIndexOf"](value, item, *rest))
    return max((i for i, one in enumerate(value) if one == item), default=-1)


def _is_sorted(items: list[Any]) -> bool:
    return all(_compare(one, other) <= 0 for one, other in pairwise(items))


def _sum(items: list[Any]) -> Any:
    if items and isinstance(items[0], timedelta):
        return sum(items, timedelta())
    return sum(items)


def _size(value: Any) -> int:
    return len(value)


def _entries(value: Any) -> list[dict[str, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return [{"k": key, "v": one} for key, one in pairs]


def _plain(value: Any) -> Any:
    if not isinstance(value, cel.OptionalValue):
        return value
    return value.value() if value.has_value() else None


def _opt_field(value: Any, key: Any) -> cel.OptionalValue:
    holder = _plain(value)
    if isinstance(holder, dict) and key in holder:
        return cel.OptionalValue.of(holder[key])
    return cel.OptionalValue.none()


def _opt_index(value: Any, key: Any) -> cel.OptionalValue:
    holder = _plain(value)
    if isinstance(holder, list) and isinstance(key, int) and 0 <= key < len(holder):
        return cel.OptionalValue.of(holder[key])
    return _opt_field(holder, key)


def _opt_list(value: Any) -> list[Any]:
    return [value.value()] if value.has_value() else []


def _opt_first(items: list[Any]) -> cel.OptionalValue:
    return cel.OptionalValue.of(items[0]) if items else cel.OptionalValue.none()


def _opt_only(items: list[Any]) -> cel.OptionalValue:
    return items[0] if items else cel.OptionalValue.none()


def _format(name: str) -> Callable[[], Tagged]:
    return lambda: {_FORMAT: name}


def _format_named(name: str) -> cel.OptionalValue:
    return cel.OptionalValue.of({_FORMAT: name}) if name in _NAMED else cel.OptionalValue.none()


def _format_validate(format_: Tagged, value: str) -> cel.OptionalValue:
    problem = _NAMED[format_[_FORMAT]](value)
    return cel.OptionalValue.of([problem]) if problem else cel.OptionalValue.none()


def _by_format(name: str) -> Callable[[str], str | None]:
    return lambda value: f"must be a valid {name}" if format_problem(name, value) else None


def _dns_1035(value: str) -> str | None:
    return dns_label_problem(value) or ("must start with a letter" if value[0].isdigit() else None)


_NAMED: Final[dict[str, Callable[[str], str | None]]] = {
    "dns1123Label": dns_label_problem,
    "dns1123Subdomain": dns_subdomain_problem,
    "dns1035Label": _dns_1035,
    "dns1123LabelPrefix": lambda value: dns_label_problem(value.removesuffix("-")),
    "dns1123SubdomainPrefix": lambda value: dns_subdomain_problem(value.removesuffix("-")),
    "dns1035LabelPrefix": lambda value: _dns_1035(value.removesuffix("-")),
    "qualifiedName": qualified_name_problem,
    "labelValue": lambda value: qualified_name_problem(value) if value else None,
    "uri": _by_format("uri"),
    "uuid": _by_format("uuid"),
    "byte": _by_format("byte"),
    "date": _by_format("date"),
    "datetime": _by_format("datetime"),
}

FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **STDLIB_FUNCTIONS,
    **{f"format.{name}": _format(name) for name in _NAMED},
    "format.named": _format_named,
    "validate": _format_validate,
    "quantity": _quantity,
    "isQuantity": _is(_quantity),
    "isInteger": _is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": lambda value: float(_amount(value)),
    "sign": _sign,
    "add": _plus,
    "sub": _minus,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "compareTo": _compare,
    "url": _url,
    "isURL": _is(_url),
    "getScheme": lambda url: urlsplit(url[_URL]).scheme,
    "getHost": _url_host,
    "getHostname": lambda url: urlsplit(url[_URL]).hostname or "",
    "getPort": lambda url: str(urlsplit(url[_URL]).port or ""),
    "getEscapedPath": lambda url: urlsplit(url[_URL]).path,
    "getQuery": _url_query,
    "ip": _ip,
    "isIP": _is(_ip),
    "ip.isCanonical": _is_canonical,
    "family": _family,
    "isUnspecified": _ip_is("is_unspecified"),
    "isLoopback": _ip_is("is_loopback"),
    "isLinkLocalMulticast": _is_link_local_multicast,
    "isLinkLocalUnicast": _ip_is("is_link_local"),
    "isGlobalUnicast": _is_global_unicast,
    "format": _text_format,
    "cidr": _cidr,
    "isCIDR": _is(_cidr),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "masked": _masked,
    "prefixLength": _prefix_length,
    "semver": _semver,
    "isSemver": _is(_semver),
    "major": _semver_part(0),
    "minor": _semver_part(1),
    "patch": _semver_part(2),
    "find": _find,
    "findAll": _find_all,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "isSorted": _is_sorted,
    "sum": _sum,
    "kSize": _size,
    "kEntries": _entries,
    "optField": _opt_field,
    "optIndex": _opt_index,
    "optList": _opt_list,
    "optFirst": _opt_first,
    "optOnly": _opt_only,
}
"""By the name that expressions use; a method's receiver is the first argument."""

NATIVE: Final = frozenset(
    "all exists exists_one map filter has contains startsWith endsWith matches size int uint double string bytes bool "
    "type dyn duration timestamp getFullYear getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear getHours "
    "getMinutes getSeconds getMilliseconds value hasValue orValue or of none ofNonZeroValue".split()
)
"""What the library has of its own."""

NAMESPACES: Final = frozenset("math sets base64 strings lists format ip cel optional google".split())
TYPES: Final = frozenset("int uint double string bytes bool list map null_type type timestamp duration".split())
