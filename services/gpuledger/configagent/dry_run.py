"""The plan of a configuration for a host, as lines that a person reads; nothing is changed."""

from collections.abc import Iterator

from gpuledger.api.machine_config import RebootStrategy
from gpuledger.configagent.apply import check_config, observe
from gpuledger.configagent.host import Host
from gpuledger.configagent.memory_file import MemoryFile
from gpuledger.configagent.plan import make_plan
from gpuledger.configagent.reboot import takes_reboot
from gpuledger.configagent.state import AgentMemory
from gpuledger.configagent.steps import SYSTEMD, Plan, Step, Work
from gpuledger.domain.machineconfig.desired import DesiredConfig


def dry_run(host: Host, config: DesiredConfig) -> tuple[Plan, list[str]]:
    """What the agent would do on this host, and how that reads.

    Raises:
        ConfigAgentError: the configuration is refused, or the host cannot be looked at.
    """
    check_config(config)
    memory = MemoryFile(host.state_dir).load()
    plan = make_plan(config, observe(host, config, memory), memory)
    return plan, [*_lines(config, plan, memory)]


def _lines(config: DesiredConfig, plan: Plan, memory: AgentMemory) -> Iterator[str]:
    changes = sum(step.changes for step in plan.steps)
    yield f"{config.name}: {changes} of {len(plan.steps)} steps change something"
    for problem in plan.problems:
        yield f"problem    {problem}"
    if plan.problems:
        yield "Nothing would be done while there are problems."
        return
    for step in plan.steps:
        yield _line(step)
    yield f"reboot     {_reboot(config, plan, memory)}"


def _line(step: Step) -> str:
    note = f" ({step.note})" if step.note else ""
    if not step.changes:
        return f"unchanged  {step.subject}{note}"
    if step.work is Work.SYSTEMCTL:
        return f"systemctl  {step.action}{'' if step.subject == SYSTEMD else f' {step.subject}'}{note}"
    if step.file is None:
        return f"remove     {step.subject}{note}"
    new = step.file
    return f"write      {new.path}: {len(new.content)} bytes, mode {new.mode:04o}, owner {new.uid}:{new.gid}{note}"


def _reboot(config: DesiredConfig, plan: Plan, memory: AgentMemory) -> str:
    if not takes_reboot(config, plan, memory):
        return "none"
    if config.reboot_strategy == RebootStrategy.IF_REQUIRED:
        return f"once all is applied, {config.reboot_min_interval_s} s after the last one that the agent made"
    return "left to people: the pool's strategy is Never, and the Node shows it as pending"
