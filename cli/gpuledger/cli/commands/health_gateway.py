"""`health-gateway`: the service that takes the reports of health monitors over TCP with TLS."""

import os
from typing import Final

from gpuledger.cli.render import message_unless_closed
from gpuledger.cli.run import run
from gpuledger.runtime.gateway_settings import read_gateway_settings
from gpuledger.runtime.tasks import run_until_stopped
from gpuledger.runtime.telemetry import configure_logging

ENDING_MAX_S: Final = 20.0


def health_gateway() -> None:
    """Take reports of health monitors over TCP with TLS, until Ctrl-C.

    Settings come from the environment; docs/health-gateway.md describes them.
    """
    from gpuledger.compose.gateway import GatewayProcess  # noqa: PLC0415 - takes a second to import

    configure_logging()
    process = GatewayProcess(read_gateway_settings(os.environ))
    run(run_until_stopped(process.run(message_unless_closed), message_unless_closed, ending_max_s=ENDING_MAX_S))
