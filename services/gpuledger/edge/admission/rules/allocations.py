"""Keeps the annotation with a pod's devices to those who account for them. Pure.

Whoever could write it would give himself the devices of others: the annotation of a bound pod is what runs there.
"""

from gpuledger.api.sharing import SharingNames
from gpuledger.edge.admission.errors import DenialError
from gpuledger.edge.admission.rules.access import is_by_the_product
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.webhooks.serving.review import CREATE, DELETE, AdmissionRequest, Object


def check_allocation(request: AdmissionRequest, names: SharingNames, home: str) -> None:
    """Refuse a change of the annotation by others, whatever part of the pod they write.

    Raises:
        DenialError: the message says who may, and what to do.
    """
    if request.operation == DELETE or _allocation(request.new, names) == _allocation(request.old, names):
        return
    if _may_allocate(request, names, home):
        return
    who = names.account or "the scheduler of shared devices"
    message = f"Only {who} writes the annotation {names.allocated}, which says which devices the pod has."
    way_out = "Create the pod without it" if request.operation == CREATE else "Leave it as it is"
    raise DenialError("AllocationNotYours", f"{message} {way_out}; the scheduler chooses the devices.")


def _may_allocate(request: AdmissionRequest, names: SharingNames, home: str) -> bool:
    if names.account is not None:
        return request.user.name == names.account
    return is_by_the_product(request, home)


def _allocation(obj: Object, names: SharingNames) -> object:
    return mapping(obj, "metadata", "annotations").get(names.allocated)
