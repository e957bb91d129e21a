"""What the product owns of each object, read from the object as the API server has it, and compared by digest. Pure.

The product owns the whole status, its own labels, finalizer and assignment annotations, and the spec where it sets one.
Everything else of an object belongs to other people and is neither read nor written.
"""

from hashlib import blake2b
from typing import Any, Final

import orjson

from gpuledger.api.conditions import MODULE_CONDITIONS
from gpuledger.api.kinds import ASSIGNMENT_FIELD_MANAGER, FIELD_MANAGER, NODES, OUR_MANAGERS, RESOURCE_SLICES
from gpuledger.api.labels import LABEL_DETECTED, POOL_FINALIZER, is_our_label
from gpuledger.api.machine_config import DESIRED_ANNOTATIONS, LABEL_POOL
from gpuledger.api.sharing import SharingNames
from gpuledger.domain.machineconfig.rendered_object import RenderedObjectError, read_object
from gpuledger.edge.statuswriter.node_resources import node_resources
from gpuledger.edge.statuswriter.objects import (
    NAMES,
    OWNED_KINDS,
    POOL_KINDS,
    DesiredObject,
    Document,
    Key,
    Kind,
    ObservedObject,
)

DIGEST_BYTES: Final = 12
METADATA_FIELDS: Final = ("labels", "annotations", "finalizers", "ownerReferences")

LABELLED: Final = (Kind.DEVICE, Kind.KUBE_NODE, Kind.SHARED, Kind.RENDERED_CONFIG, Kind.COMPONENT)
ANNOTATED: Final = (Kind.KUBE_NODE, Kind.SHARED)
SPECIFIED: Final = (*OWNED_KINDS, Kind.NODE, Kind.RULE, Kind.COMPONENT, Kind.RENDERED_CONFIG)
"""Kinds of whose objects the product owns labels, annotations and the spec."""

UNREADABLE: Final = "unreadable"

WITHOUT_DESIRED_STATE: Final = (Kind.DEVICE, Kind.NODE, Kind.MODULE)
"""Kinds with conditions that follow from facts alone, whatever the object's spec says."""


def digest(document: object) -> bytes:
    """The same for equal documents, whatever the order of keys, of conditions and of sets."""
    return blake2b(orjson.dumps(document, option=orjson.OPT_SORT_KEYS), digest_size=DIGEST_BYTES).digest()


def observe(kind: Kind, obj: Document, names: SharingNames = NAMES) -> ObservedObject:
    """What the cache keeps of an object; `names` are those of shared devices."""
    metadata = obj["metadata"]
    return ObservedObject(
        metadata["uid"],
        metadata["resourceVersion"],
        digest(main_of(kind, obj, names)),
        digest(status_of(kind, obj, names)),
        "deletionTimestamp" in metadata,
        _changed_by(metadata),
        about=_about(kind, obj),
        approved=_approved(metadata) if kind is Kind.DEVICE else None,
        generation=metadata.get("generation") or 0,
    )


def _about(kind: Kind, obj: Document) -> str | None:
    """The UID of the object that this one describes, or which configuration it is."""
    if kind is Kind.SHARED:
        return next((one.get("uid") for one in owners_of_kind(obj, NODES.kind)), None)
    if kind is Kind.RENDERED_CONFIG:
        return rendered_identity(obj)
    return (obj.get("spec") or {}).get("sliceUID") if kind is Kind.SLICE else None


def rendered_identity(obj: Document) -> str:
    """Which configuration a RenderedMachineConfig is, by all of it that never changes; UNREADABLE: it is none."""
    try:
        config = read_object(obj)
    except RenderedObjectError:
        return UNREADABLE
    sources = [(one.get("name"), one.get("priority")) for one in obj["spec"].get("sources") or ()]
    return digest([config.name, config.pool, config.config_hash, sources]).hex()


def owners_of_kind(obj: Document, kind: str) -> list[Document]:
    """The owners of an object that are of a kind."""
    return [one for one in obj["metadata"].get("ownerReferences") or () if one.get("kind") == kind]


def for_object(kind: Kind, desired: DesiredObject | None, observed: ObservedObject | None) -> DesiredObject | None:
    """The desired form of this very object: with its own generation, and only with annotations that are for it.

    Conditions have the generation that each was observed at, where no decision names one. As core controllers do, such
    a condition names the present metadata.generation of its own object: it is never out of date. A status does not
    change the generation, so that writing it leads to no further write.
    """
    if desired is None or observed is None:
        return desired
    if desired.configured not in (None, observed.uid):
        return desired._replace(main=desired.main | {"annotations": {}})
    if kind not in WITHOUT_DESIRED_STATE or not observed.generation:
        return desired
    generation = {"observedGeneration": observed.generation}
    conditions = [generation | one for one in desired.status.get("conditions", ())]
    return desired._replace(status=desired.status | {"conditions": conditions}) if conditions else desired


def main_of(kind: Kind, obj: Document, names: SharingNames = NAMES) -> Document:
    """What the product owns of an object outside its status."""
    metadata, found = obj["metadata"], Document()
    if kind in LABELLED:
        found["labels"] = our_labels(kind, obj, names)
    if kind in ANNOTATED:
        found["annotations"] = _our_annotations(kind, metadata, names)
    if kind in POOL_KINDS:
        found["finalizers"] = [one for one in metadata.get("finalizers") or () if one == POOL_FINALIZER]
    if kind in SPECIFIED:
        found["spec"] = obj.get("spec") or {}
    if kind in OWNED_KINDS:
        owner = NODES if kind is Kind.SHARED else RESOURCE_SLICES
        found["ownerReferences"] = owners_of_kind(obj, owner.kind)
    return found


def _our_annotations(kind: Kind, metadata: Document, names: SharingNames) -> dict[str, str]:
    if kind is Kind.KUBE_NODE:
        return config_annotations(metadata)
    owned = owned_annotations(metadata, FIELD_MANAGER)
    return {key: value for key, value in owned.items() if key == names.checkpoints}


def our_labels(kind: Kind, obj: Document, names: SharingNames = NAMES) -> dict[str, str]:
    """The labels of an object that the product owns; of a DaemonSet all."""
    labels = obj["metadata"].get("labels") or {}
    if kind is Kind.COMPONENT:
        return dict(labels)
    if kind is Kind.RENDERED_CONFIG:
        return {key: value for key, value in labels.items() if key == LABEL_POOL}
    if kind in (Kind.KUBE_NODE, Kind.SHARED):
        return {key: value for key, value in labels.items() if key in (LABEL_DETECTED, names.gpu_model)}
    return {key: value for key, value in labels.items() if is_our_label(key)}


def status_of(kind: Kind, obj: Document, names: SharingNames = NAMES) -> Document:
    """What the product owns of an object's status: all of it, but of a ModuleConfig its own conditions.

    Of a Node it owns the resources that are shared.
    """
    status = obj.get("status") or {}
    if kind in (Kind.RULE, Kind.COMPONENT, Kind.SHARED, Kind.RENDERED_CONFIG):
        return {}
    if kind is Kind.KUBE_NODE:
        return node_resources(obj, names)
    if kind is Kind.MODULE:
        conditions = sorted(status.get("conditions") or (), key=item_name)
        return {"conditions": [one for one in conditions if one.get("type") in MODULE_CONDITIONS]}
    return canonical(status)


def canonical(status: Document) -> Document:
    """A status with its conditions and sets in one order, because the order of neither means anything."""
    ordered: Document = _canonical(status)
    return ordered


def _canonical(value: Any) -> Any:  # noqa: ANN401 - JSON is any value
    if isinstance(value, dict):
        return {key: _canonical(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted(map(_canonical, value), key=item_name)
    return value


def item_name(value: object) -> str:
    """Identifies an item of a list among the others: its type or name, or the item itself."""
    if isinstance(value, dict):
        return str(value.get("type") or value.get("name") or "")
    return str(value)


def body(key: Key, part: Document, uid: str | None = None) -> Document:
    """An object to apply: `part` is either what the product owns outside the status, or the status.

    With a UID only the object that has it is changed, and none is created.
    """
    identity = {"name": key.name, "namespace": key.namespace, "uid": uid}
    metadata = {name: value for name, value in identity.items() if value}
    metadata |= {name: part[name] for name in METADATA_FIELDS if part.get(name)}
    return {"metadata": metadata} | {name: value for name, value in part.items() if name not in METADATA_FIELDS}


def _approved(metadata: Document) -> bytes | None:
    """The digest of the annotations that a pool set itself, as far as it still owns them."""
    kept = owned_annotations(metadata, ASSIGNMENT_FIELD_MANAGER)
    return digest(kept) if kept else None


def owned_annotations(metadata: Document, manager: str) -> dict[str, str]:
    """The annotations that a field manager owns."""
    owned: Document = {}
    for entry in metadata.get("managedFields") or ():
        if entry.get("manager") == manager:
            owned |= ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:annotations") or {}
    annotations = metadata.get("annotations") or {}
    return {key: value for key, value in annotations.items() if f"f:{key}" in owned}


def config_annotations(metadata: Document) -> dict[str, str]:
    """The annotations of a Node about its configuration that the product writes: all of them, once it owns one.

    While it owns none they belong to another controller of the same names, or to nobody.
    """
    if not owned_annotations(metadata, FIELD_MANAGER).keys() & set(DESIRED_ANNOTATIONS):
        return {}
    return {key: value for key, value in metadata["annotations"].items() if key in DESIRED_ANNOTATIONS}


def _changed_by(metadata: Document) -> str | None:
    writes = [
        (entry.get("time") or "", str(entry.get("manager") or ""))
        for entry in metadata.get("managedFields") or ()
        if entry.get("manager") not in OUR_MANAGERS
    ]
    return max(writes)[1] if writes else None
