"""Handles CustomResourceDefinitions as objects: their defaults, validation and status.

`accept` does at once what controllers of a real cluster do soon after creation. `custom` makes the resources of a CRD;
this module never serves them.
"""

from copy import deepcopy
from datetime import datetime

from gpuledger.edge.kube.schema.causes import Cause, Object
from gpuledger.edge.kube.schema.expressions import UnsupportedExpressionError
from gpuledger.local.kubeapi.crd_problems import changes, problems_of
from gpuledger.local.kubeapi.errors import not_implemented
from gpuledger.local.kubeapi.resources import Context, Strategy, timestamp

_NO_CONFLICTS = ("NamesAccepted", "NoConflicts", "no conflicts found")
_ESTABLISHED = ("Established", "InitialNamesAccepted", "the initial names have been accepted")


class CrdStrategy(Strategy):
    """The behaviour of CRDs."""

    def default(self, obj: Object) -> None:
        """Derive the singular and the list's kind from the kind; convert nothing."""
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            return
        names = spec.get("names")
        if isinstance(names, dict) and names.get("kind"):
            names["singular"] = names.get("singular") or names["kind"].lower()
            names["listKind"] = names.get("listKind") or f"{names['kind']}List"
        if not spec.get("conversion"):
            spec["conversion"] = {"strategy": "None"}

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Start with a status of the storage version alone."""
        obj["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []}
        _remember_storage(obj)

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """Let `status` write the status alone; otherwise keep it and add a new storage version."""
        if subresource == "status":
            obj["spec"] = deepcopy(old["spec"])
            return
        obj["status"] = deepcopy(old.get("status", {}))
        _remember_storage(obj)

    def validate(self, obj: Object) -> list[Cause]:
        """Everything wrong with the CRD, schemas and rules included.

        Raises:
            ApiError: 501, it needs a feature that the server does not implement.
        """
        if ((obj.get("spec") or {}).get("conversion") or {}).get("strategy") == "Webhook":
            raise not_implemented("conversion between versions of custom resources")
        try:
            return problems_of(obj)
        except UnsupportedExpressionError as error:
            raise not_implemented(str(error)) from error

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """As on creation, and no forbidden changes."""
        return [] if subresource else [*self.validate(obj), *changes(obj, old)]


def accept(crd: Object, now: datetime) -> None:
    """Mark the CRD as accepted and established; conditions that are True already keep their time."""
    status = crd.setdefault("status", {})
    status["acceptedNames"] = deepcopy(crd["spec"]["names"])
    for type_, reason, message in (_NO_CONFLICTS, _ESTABLISHED):
        _set_condition(status, type_, reason, message, now)
    _remember_storage(crd)


def emptying(crd: Object, now: datetime) -> Object:
    """The CRD with condition Terminating."""
    then = deepcopy(crd)
    message = "CustomResource deletion is in progress"
    _set_condition(then["status"], "Terminating", "InstanceDeletionInProgress", message, now)
    return then


def _set_condition(status: Object, type_: str, reason: str, message: str, now: datetime) -> None:
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    if conditions.get(type_, {}).get("status") != "True":
        head = {"type": type_, "status": "True", "lastTransitionTime": timestamp(now)}
        conditions[type_] = head | {"reason": reason, "message": message}
    status["conditions"] = list(conditions.values())


def _remember_storage(crd: Object) -> None:
    stored = list(crd["status"].get("storedVersions") or ())
    for version in (crd.get("spec") or {}).get("versions") or ():
        if version.get("storage"):
            if version.get("name") not in stored:
                stored.append(version.get("name"))
            break
    crd["status"]["storedVersions"] = stored
