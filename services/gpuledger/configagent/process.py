"""The process of the agent of machine configuration: the agent, its reports, metrics and health, and its end.

It needs the Kubernetes API alone, and that only to hear of a configuration: neither the ledger nor the node's agent has
to be there.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

from gpuledger.configagent.agent import ConfigAgent
from gpuledger.configagent.errors import AccessError, FolderTakenError, HostError
from gpuledger.configagent.kube_access import KubeAccess, read_access
from gpuledger.configagent.kube_api import KubeNodeApi
from gpuledger.configagent.kube_http import KubeHttp
from gpuledger.configagent.memory_file import sole_agent
from gpuledger.configagent.metrics import ConfigAgentMetrics
from gpuledger.configagent.settings import ConfigAgentSettings, read_config_agent_settings
from gpuledger.runtime.clock import random_id, system_clock
from gpuledger.runtime.node_process import print_error, print_message
from gpuledger.runtime.settings import SettingsError
from gpuledger.runtime.tasks import run_until_stopped
from gpuledger.runtime.telemetry import configure_logging
from gpuledger.runtime.telemetry_http import Health, ListenError, serving
from gpuledger.runtimefacts.folder import FactsFolder
from gpuledger.runtimefacts.stored import StoredFacts

OK, FAILED, USAGE, BUSY = 0, 1, 2, 5
"""Exit codes, with the meaning that they have for every command."""

ENDING_MAX_S: Final = 25.0
"""How long an orderly end may take, in which the step under way ends; a pod has 30 s."""


def serve(environ: Mapping[str, str]) -> int:
    """Run the agent that the environment describes until a signal stops it; returns the exit code."""
    configure_logging()
    try:
        settings, access = read_config_agent_settings(environ), read_access(environ)
        asyncio.run(run_until_stopped(_work(settings, access), print_message, ending_max_s=ENDING_MAX_S))
    except (SettingsError, AccessError) as error:
        return print_error(error, USAGE)
    except FolderTakenError as error:
        return print_error(error, BUSY)
    except (ListenError, HostError) as error:
        return print_error(error, FAILED)
    return OK


async def _work(settings: ConfigAgentSettings, access: KubeAccess) -> None:
    facts = StoredFacts(FactsFolder(settings.facts), clock=system_clock, new_id=random_id)
    api = KubeNodeApi(KubeHttp(access), settings.node)
    agent = ConfigAgent(settings.node, settings.host(), api, facts.record, system_clock, settings.times())
    async with AsyncExitStack() as stack:
        stack.enter_context(sole_agent(settings.state))
        stack.enter_context(ConfigAgentMetrics(agent).registered())
        url = await stack.enter_async_context(serving(settings.metrics, lambda: _health(agent, facts)))
        print_message(
            f"The agent of machine configuration of {settings.node} is up: host root {settings.root}; "
            f"metrics {url}/metrics, health {url}/healthz"
        )
        await agent.run()


def _health(agent: ConfigAgent, facts: StoredFacts) -> Health:
    """Healthy while it answers; a restart would mend neither an API server that is away nor a host that fails."""
    report = agent.report
    troubles = {**agent.troubles, **({"facts": facts.trouble} if facts.trouble else {})}
    document = {
        "status": "ok",
        "reason": None,
        "state": None if report is None else report.state.value,
        "revision": None if report is None else report.revision,
        "current": None if report is None else report.current,
        "error": None if report is None else report.error or None,
        "troubles": troubles,
    }
    return Health(True, document)
