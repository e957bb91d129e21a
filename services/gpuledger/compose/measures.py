"""What keeps the metrics of the services that a process runs: one measurement for each that has any."""

from collections.abc import Callable, Iterator

from gpuledger.compose.certificate_metrics import measure_certificates, watched_files
from gpuledger.compose.log_metrics import measure_log
from gpuledger.compose.machine_config_metrics import measure_machine_configs
from gpuledger.compose.quarantine_metrics import measure_quarantine
from gpuledger.compose.remediation_metrics import measure_remediation
from gpuledger.compose.source_metrics import measure_sources
from gpuledger.deciders.health.projection import HealthProjection
from gpuledger.deciders.remediation.projection import RemediationProjection
from gpuledger.deciders.rollout.projection import RolloutProjection
from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.settings import NatsIdentity
from gpuledger.runtime.tasks import Work


def measures(
    runs: Callable[[str], bool], identity: NatsIdentity, database_url: str, ledger: JetStreamLedger
) -> Iterator[Work]:
    """The measurements of the services that `runs` says run here, and of the certificates of their logins."""
    yield measure_certificates(watched_files(identity, database_url))
    if runs(SourcesProjection.name):
        yield measure_sources(database_url)
    if runs(HealthProjection.name):
        yield measure_quarantine(database_url)
    if runs(RemediationProjection.name):
        yield measure_remediation(database_url)
    if runs(RolloutProjection.name):
        yield measure_machine_configs(database_url)
    if runs(SealsProjection.name):
        yield measure_log(ledger, database_url)
