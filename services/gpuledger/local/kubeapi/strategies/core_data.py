"""Config maps and secrets: keys, sizes, types, and those that may never change."""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping

from gpuledger.edge.kube.schema.causes import Cause, Object, forbidden, invalid, required, too_long
from gpuledger.local.kubeapi.errors import bad_request
from gpuledger.local.kubeapi.strategies.core_shared import BuiltinStrategy, at

DATA_MAX_BYTES = 1024 * 1024
KEY_MAX = 253
SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
_ACCOUNT = "kubernetes.io/service-account.name"
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_NEEDS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_LOGIN = "kubernetes.io/basic-auth"


class ConfigMapStrategy(BuiltinStrategy):
    """The behaviour of config maps."""

    has_generation = False

    def decode(self, body: Object) -> None:
        """Refuse binary data that is no base64 (400)."""
        _check_base64(body.get("binaryData") or {}, "ConfigMap")

    def validate(self, obj: Object) -> list[Cause]:
        """What is wrong with a config map."""
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        causes = [*_key_causes(data, "data"), *_key_causes(binary, "binaryData")]
        causes += [
            invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in data.keys() & binary
        ]
        size = sum(len(str(text).encode()) for text in data.values()) + _decoded_size(binary)
        return [*causes, too_long("", DATA_MAX_BYTES)] if size > DATA_MAX_BYTES else causes

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """An immutable one keeps its data for good."""
        return [*self.validate(obj), *_immutability_causes(obj, old, ("data", "binaryData"))]


class SecretStrategy(BuiltinStrategy):
    """The behaviour of secrets."""

    has_generation = False

    def decode(self, body: Object) -> None:
        """Refuse data that is no base64 (400)."""
        _check_base64(body.get("data") or {}, "Secret")

    def default(self, obj: Object) -> None:
        """Write `stringData` into data; a secret without a type is Opaque."""
        plain: Mapping[str, str] = obj.pop("stringData", None) or {}
        if plain:
            encoded = {key: base64.b64encode(str(text or "").encode()).decode() for key, text in plain.items()}
            obj["data"] = (obj.get("data") or {}) | encoded
        if not obj.get("type"):
            obj["type"] = "Opaque"
        for key, value in (obj.get("data") or {}).items():
            obj["data"][key] = value or ""
        super().default(obj)

    def validate(self, obj: Object) -> list[Cause]:
        """What is wrong with a secret."""
        data = obj.get("data") or {}
        causes = [*_key_causes(data, "data")]
        if _decoded_size(data) > DATA_MAX_BYTES:
            causes.append(too_long("data", DATA_MAX_BYTES))
        return [*causes, *_type_causes(obj, data)]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """The type never changes, an immutable secret not at all."""
        causes = [*self.validate(obj), *_immutability_causes(obj, old, ("data",))]
        if obj.get("type") != old.get("type"):
            return [invalid("type", obj.get("type"), "field is immutable"), *causes]
        return causes

    def field_labels(self, obj: Object) -> Mapping[str, str]:
        """Secrets are found by type."""
        return {"type": obj.get("type") or ""}

    def field_names(self) -> frozenset[str]:
        """Which names field selectors of secrets may use."""
        return frozenset({"type"})


class ServiceAccountStrategy(BuiltinStrategy):
    """The behaviour of service accounts."""

    has_generation = False
    updates_unconditionally = False
    answers_deleted_object = True


def _check_base64(values: Mapping[str, object], kind: str) -> None:
    for value in values.values():
        try:
            base64.b64decode(str(value or ""), validate=True)
        except (binascii.Error, ValueError) as failure:
            text = f'{kind} in version "v1" cannot be handled as a {kind}: illegal base64 data'
            raise bad_request(text) from failure


def _decoded_size(values: Mapping[str, str]) -> int:
    return sum(len(text) * 3 // 4 - text[-2:].count("=") for text in values.values() if text)


def _key_causes(values: Mapping[str, object], field: str) -> Iterator[Cause]:
    for key in values:
        if len(key) > KEY_MAX:
            yield invalid(f"{field}[{key}]", key, f"must be no more than {KEY_MAX} characters")
        elif not _KEY.fullmatch(key):
            text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
            yield invalid(f"{field}[{key}]", key, text)
        elif key == "." or key.startswith(".."):
            yield invalid(f"{field}[{key}]", key, "must not be '.' or start with '..'")


def _immutability_causes(obj: Object, old: Object, fields: tuple[str, ...]) -> Iterator[Cause]:
    if not old.get("immutable"):
        return
    if obj.get("immutable") is not True:
        yield forbidden("immutable", "field is immutable when `immutable` is set")
    for name in fields:
        if (obj.get(name) or {}) != (old.get(name) or {}):
            yield forbidden(name, "field is immutable when `immutable` is set")


def _type_causes(secret: Object, data: Mapping[str, str]) -> Iterator[Cause]:
    kind = secret.get("type")
    if kind == SERVICE_ACCOUNT_TOKEN and not at(secret, "metadata", "annotations").get(_ACCOUNT):
        yield required(f"metadata.annotations[{_ACCOUNT}]")
    if kind == _LOGIN and not {"username", "password"} & data.keys():
        yield from (required(f"data[{name}]") for name in ("username", "password"))
    for name in _NEEDS.get(str(kind), ()):
        if name not in data:
            yield required(f"data[{name}]")
        elif name.startswith(".docker") and not _is_json(data[name]):
            yield invalid(f"data[{name}]", "<secret contents redacted>", "must be valid JSON")


def _is_json(encoded: str) -> bool:
    try:
        json.loads(base64.b64decode(encoded))
    except ValueError:
        return False
    return True
