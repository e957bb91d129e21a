"""ConfigMaps, Secrets and ServiceAccounts: defaults, and what never changes."""

import base64
import re
from collections.abc import Iterator, Mapping

from gpuledger.edge.kube.schema.causes import Cause, Object, forbidden, invalid, required
from gpuledger.local.kubeapi.strategies.core_shared import BuiltinStrategy, immutable

_KEY_PROBLEM = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
_KEY = re.compile(r"(?!\.$|\.\.)[-._a-zA-Z0-9]{1,253}")
_NEEDS = {"kubernetes.io/tls": ("tls.crt", "tls.key")}


class ConfigMapStrategy(BuiltinStrategy):
    """The behaviour of config maps."""

    has_generation = False
    values: tuple[str, ...] = ("data", "binaryData")

    def validate(self, obj: Object) -> list[Cause]:
        """Keys are names of files."""
        return [
            invalid(f"{field}[{key}]", key, _KEY_PROBLEM)
            for field in self.values
            for key in obj.get(field) or {}
            if not _KEY.fullmatch(key)
        ]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """An immutable object keeps its values."""
        fixed = ("immutable", *self.values) if old.get("immutable") else ()
        changed = (name for name in fixed if (obj.get(name) or {}) != (old.get(name) or {}))
        return [
            *self.validate(obj),
            *(forbidden(name, "field is immutable when `immutable` is set") for name in changed),
        ]


class SecretStrategy(ConfigMapStrategy):
    """The behaviour of secrets."""

    values = ("data",)

    def default(self, obj: Object) -> None:
        """Write `stringData` into data; a secret without a type is Opaque."""
        plain: Mapping[str, str] = obj.pop("stringData", None) or {}
        if plain:
            encoded = {key: base64.b64encode((text or "").encode()).decode() for key, text in plain.items()}
            obj["data"] = (obj.get("data") or {}) | encoded
        if not obj.get("type"):
            obj["type"] = "Opaque"

    def validate(self, obj: Object) -> list[Cause]:
        """Everything wrong with a secret."""
        return [*super().validate(obj), *_type_causes(obj)]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """The type never changes, an immutable secret not at all."""
        return [*immutable(obj, old, ("type",)), *super().validate_update(obj, old, subresource)]

    def field_labels(self, obj: Object) -> Mapping[str, str]:
        """Secrets are found by type."""
        return {"type": obj.get("type") or ""}


class ServiceAccountStrategy(BuiltinStrategy):
    """The behaviour of service accounts."""

    has_generation = False
    updates_unconditionally = False
    answers_deleted_object = True


def _type_causes(secret: Object) -> Iterator[Cause]:
    for name in _NEEDS.get(str(secret.get("type")), ()):
        if name not in (secret.get("data") or {}):
            yield required(f"data[{name}]")
