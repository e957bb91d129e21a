"""Namespaces as objects; `controllers` and `terminating` decide how they end."""

from collections.abc import Mapping

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.edge.kube.schema.object_names import dns_label_problem, qualified_name_problem
from gpuledger.local.kubeapi.resources import Context
from gpuledger.local.kubeapi.strategies.core_shared import (
    BuiltinStrategy,
    at,
    keep,
    part_of,
)

FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"


class NamespaceStrategy(BuiltinStrategy):
    """The behaviour of namespaces."""

    has_generation = False
    answers_deleted_object = True

    def default(self, obj: Object) -> None:
        """A namespace always carries its name as a label."""
        metadata = part_of(obj, "metadata")
        if metadata.get("name"):
            metadata["labels"] = (metadata.get("labels") or {}) | {NAME_LABEL: metadata["name"]}

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Begin as Active, held by the namespace controller."""
        finalizers = at(obj, "spec").get("finalizers") or []
        added = [] if FINALIZER in finalizers else [FINALIZER]
        obj["spec"] = at(obj, "spec") | {"finalizers": [*finalizers, *added]}
        obj["status"] = {"phase": "Active"}

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """Each endpoint writes its own: the object its metadata, `/status` the status, `/finalize` the finalizers."""
        if subresource != "finalize":
            keep(obj, old, ("spec",))
        if subresource != "status":
            keep(obj, old, ("status",))

    def validate(self, obj: Object) -> list[Cause]:
        """Finalizers are `kubernetes` or qualified."""
        names = enumerate(at(obj, "spec").get("finalizers") or ())
        bad = ((index, name) for index, name in names if qualified_name_problem(name) or not _is_finalizer(name))
        text = "name is neither a standard finalizer name nor is it fully qualified"
        return [invalid(f"spec.finalizers[{index}]", name, text) for index, name in bad]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """A status says Terminating where the namespace is being deleted, else Active."""
        phase = at(obj, "status").get("phase")
        expected = "Terminating" if at(obj, "metadata").get("deletionTimestamp") else "Active"
        if subresource == "status" and phase != expected:
            return [invalid("status.phase", phase, f"may only be '{expected}'")]
        return self.validate(obj) if subresource == "finalize" else []

    def validate_name(self, name: str) -> str | None:
        """A namespace's name is a DNS label."""
        return dns_label_problem(name)

    def field_labels(self, obj: Object) -> Mapping[str, str]:
        """The values for field selectors of namespaces."""
        return {"status.phase": at(obj, "status").get("phase") or ""}


def _is_finalizer(name: str) -> bool:
    return "/" in name or name in {FINALIZER, "orphan", "foregroundDeletion"}
