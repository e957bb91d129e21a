"""The `statuswriter` service: GPUDevices, GPUNodeStates and what else the API server shows of the ledger."""

from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.statuswriter.reconcile.verify import KubeVerification, compare
from gpuledger.edge.statuswriter.service import StatusWriter, StatusWriterHealth
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.ledger.api import Ledger


def status_writer(
    ledger: Ledger, database_url: str, client: KubeClient, settings: StatusWriterSettings | None = None
) -> StatusWriter:
    """The service; `run` it, and ask it for its `health`."""
    return StatusWriter(ledger, database_url, client, settings=settings)


__all__ = ["KubeVerification", "StatusWriter", "StatusWriterHealth", "StatusWriterSettings", "compare", "status_writer"]
