"""Explains a pod's shared devices: the ledger's rows, and what its Pod in Kubernetes adds.

Where the ledger has nothing of a pod that is there, because its watchers are behind, the Pod alone says what it asks
for, and the ledger's nodes what becomes of it.
"""

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

import orjson

from gpuledger.api.sharing import SharingNames
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.sharing.holding import settled
from gpuledger.domain.sharing.rows import SharedPod
from gpuledger.domain.sharing.texts import text_of_allocation
from gpuledger.edge.kube.client import Object
from gpuledger.edge.watchers.resources.sharing_pods import read_pod
from gpuledger.events.sharing import PodSharingObserved
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.sharing_settings import read_sharing_names
from gpuledger.tools.explain.pod_preflight import require_readable
from gpuledger.tools.explain.query import QueriedPod, WhyQuery
from gpuledger.tools.explain.shares import SharesFinding, shares_answer
from gpuledger.tools.explain.shares_document import Document, shares_document
from gpuledger.tools.explain.shares_wording import shares_notes
from gpuledger.tools.queries.shares import RecordedShares

FROM_POD: Final = "What the pod asks of shared devices is as in Kubernetes: the ledger has nothing of this pod yet."


class SharesExplanation(NamedTuple):
    """A pod's shared devices as a document, with notes about it."""

    document: Document
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """One sentence."""
        return str(self.document["answer"])


async def explain_shares(
    recorded: RecordedShares, query: WhyQuery, pod: QueriedPod, environ: Mapping[str, str] = os.environ
) -> SharesExplanation | None:
    """Explain the shared devices of a pod; None where it asks for none and has none.

    Raises:
        ToolError: the user may not read pods of its namespace, and Kubernetes has not shown this one.
        SettingsError: the environment sets names that are none.
    """
    row, notes = recorded.pod, tuple[str, ...]()
    if pod.object is None:
        await require_readable(query)
    elif row is None or row.uid != _uid(pod.object):
        row, notes = pod_in(pod.object, query.name, read_sharing_names(environ)), (FROM_POD,)
    if row is None:
        return None
    found = shares_answer(recorded.state, row, only=query.node)
    if found.finding is SharesFinding.NOTHING:
        return None
    return SharesExplanation(shares_document(found), (*notes, *shares_notes(found)))


def pod_in(obj: Object, name: str, names: SharingNames) -> SharedPod | None:
    """The pod as its object has it; None where it has nothing to do with shared devices."""
    part = read_pod(names, obj)
    if part.subject is None:
        return None
    data = PodSharingObserved.model_validate(orjson.loads(part.content))
    return settled(
        SharedPod(
            data.uid,
            name,
            name.partition("/")[0],
            scheduler=data.scheduler,
            requests=json_text(data.requests),
            hint=data.hint,
            joint=data.joint,
            partition_spec=data.partition,
            unreadable=data.unreadable,
            started=data.started,
            observed_node=data.node,
            annotation=text_of_allocation(data.allocation or {}),
            observed_at=system_clock(),
        )
    )


def _uid(obj: Object) -> str:
    return str((obj.get("metadata") or {}).get("uid") or "")
