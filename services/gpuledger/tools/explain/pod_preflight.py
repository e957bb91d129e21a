"""Explains which preflight check keeps a pod from starting: the ledger's rows, and what its Pod adds.

The Pod has how long its checks wait for their gang. Where the ledger has nothing of it, because its watchers are behind
or there is no ledger, the Pod alone says how far its checks are.
"""

from typing import NamedTuple

from gpuledger.api.kinds import PODS
from gpuledger.domain.preflight.pod_checks import PodChecks
from gpuledger.edge.kube.objects import mapping
from gpuledger.tools.errors import ToolError
from gpuledger.tools.explain.access import readable
from gpuledger.tools.explain.preflight_document import Document, checks_document
from gpuledger.tools.explain.preflight_wording import FROM_KUBERNETES
from gpuledger.tools.explain.query import QueriedPod, WhyQuery
from gpuledger.tools.present.preflight import gang_timeouts
from gpuledger.tools.present.source import KubernetesSource


class ChecksExplanation(NamedTuple):
    """A pod's checks as a document, with notes about it."""

    document: Document
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """One sentence; empty while checks are not what the pod waits for."""
        return str(self.document["answer"])


async def explain_checks(recorded: PodChecks | None, query: WhyQuery, pod: QueriedPod) -> ChecksExplanation | None:
    """Explain the checks of a pod, of whose name the source has recorded these; None where it has none.

    Raises:
        ToolError: the user may not read pods of its namespace, and Kubernetes has not shown this one.
        KubeError: Kubernetes has shown this pod, and cannot be read any more.
    """
    if pod.object is None:
        await require_readable(query)
        return None if recorded is None else ChecksExplanation(checks_document(recorded))
    found, notes = recorded, tuple[str, ...]()
    if query.live_access is not None and not _is_of(recorded, pod):
        source = KubernetesSource(query.live_access, query.namespace)
        found, notes = await source.preflight(query.name), (FROM_KUBERNETES, *source.notes)
    if found is None:
        return None
    return ChecksExplanation(checks_document(found._replace(gang_timeouts=gang_timeouts(pod.object))), notes)


def _is_of(recorded: PodChecks | None, pod: QueriedPod) -> bool:
    """Whether the checks are those of the pod itself, and not of one of its name before."""
    return recorded is not None and recorded.uid == mapping(pod.object, "metadata").get("uid")


async def require_readable(query: WhyQuery) -> None:
    """Return if the user may read pods of the namespace, which nothing else has shown.

    Raises:
        ToolError: the user may not.
    """
    may = await readable(query.access, [query.namespace], PODS)
    if not may.may_name(query.namespace):
        hint = "Ask for the right to get pods there"
        raise ToolError(f"You may not read Pods in namespace {query.namespace!r}", hint)
