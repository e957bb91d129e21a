"""`auth-callout`: the service that lets agents log in to a NATS server by the tokens of their service account."""

import os
from typing import Final

from gpuledger.cli.render import message_unless_closed
from gpuledger.cli.run import run
from gpuledger.runtime.settings import read_callout_settings
from gpuledger.runtime.tasks import run_until_stopped
from gpuledger.runtime.telemetry import configure_logging

ENDING_MAX_S: Final = 10.0


def auth_callout() -> None:
    """Let agents log in to a NATS server by the tokens of their service account, until Ctrl-C.

    Settings come from the environment; docs/agent-credentials.md describes them.
    """
    from gpuledger.compose.auth_callout import CalloutProcess  # noqa: PLC0415 - takes a second to import

    configure_logging()
    process = CalloutProcess(read_callout_settings(os.environ))
    run(run_until_stopped(process.run(message_unless_closed), message_unless_closed, ending_max_s=ENDING_MAX_S))
