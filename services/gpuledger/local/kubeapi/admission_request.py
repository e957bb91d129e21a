"""Describes a write to whoever admits it, webhooks and policies alike. Pure."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gpuledger.edge.kube.schema.causes import Object


class KindVersion(NamedTuple):
    """One version of a resource, as a rule may name it."""

    group: str
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        """As objects write it."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True)
class Question:
    """A request for admission. `operation` is CREATE, UPDATE or DELETE; `options` are those of the request.

    `others` are the further versions of the resource. `requested` is the version of the request where `version` is
    another one, which a rule names.
    """

    operation: str
    version: KindVersion
    name: str
    namespace: str = ""
    subresource: str = ""
    is_namespaced: bool = True
    user: Object = field(default_factory=dict)
    options: Object = field(default_factory=dict)
    others: tuple[KindVersion, ...] = ()
    requested: KindVersion | None = None

    @property
    def dry_run(self) -> bool:
        """Whether the request stores nothing."""
        return bool(self.options.get("dryRun"))

    def in_version(self, version: KindVersion) -> "Question":
        """The same request, with the objects in another version."""
        return replace(self, version=version, requested=self.requested or self.version)


def request_of(question: Question, uid: str, obj: Object | None, old: Object | None) -> Object:
    """The `request` of an AdmissionReview."""
    version, requested = question.version, question.requested or question.version
    kinds: Object = {
        "uid": uid,
        "kind": _kind(version),
        "resource": _resource(version),
        "requestKind": _kind(requested),
        "requestResource": _resource(requested),
    }
    if question.subresource:
        kinds |= {"subResource": question.subresource, "requestSubResource": question.subresource}
    names = {"name": question.name, "namespace": question.namespace}
    return {
        **kinds,
        **{key: value for key, value in names.items() if value},
        "operation": question.operation,
        "userInfo": question.user,
        "object": _in_version(obj, version),
        "oldObject": _in_version(old, version),
        "dryRun": question.dry_run,
        "options": question.options or None,
    }


def _kind(version: KindVersion) -> Object:
    return {"group": version.group, "version": version.version, "kind": version.kind}


def _resource(version: KindVersion) -> Object:
    return {"group": version.group, "version": version.version, "resource": version.plural}


def _in_version(obj: Object | None, version: KindVersion) -> Object | None:
    if obj is None:
        return None
    return {**obj, "kind": obj.get("kind") or version.kind, "apiVersion": version.api_version}
