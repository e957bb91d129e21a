"""The `admission` service: webhooks for pods that use GPUs, for pools, and for GPUDevices."""

from gpuledger.edge.admission.service import Admission, AdmissionHealth
from gpuledger.edge.admission.settings import AdmissionSettings, Reached
from gpuledger.edge.kube.client import KubeClient
from gpuledger.ledger.api import Ledger


def admission(ledger: Ledger, client: KubeClient, settings: AdmissionSettings | None = None) -> Admission:
    """The service; `run` it, and ask it for its `health`."""
    return Admission(ledger, client, settings)


async def serve(ledger: Ledger, client: KubeClient, settings: AdmissionSettings | None = None) -> None:
    """Run it until cancelled.

    Raises:
        ListenError: nobody can listen at the address in the settings.
    """
    await admission(ledger, client, settings).run()


__all__ = ["Admission", "AdmissionHealth", "AdmissionSettings", "Reached", "admission", "serve"]
