"""Applies a configuration to a host: looks at it, plans, writes down what begins, and takes the steps one by one.

What begins is on disk before the first step, and what was done after the last one, so that an agent that is killed
anywhere goes on where it was. A step that fails ends the work: what follows may need it.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from gpuledger.configagent.errors import ConfigAgentError, HostError, RefusedConfigError
from gpuledger.configagent.host import Host
from gpuledger.configagent.host_file import FileStatus
from gpuledger.configagent.memory_file import MemoryFile
from gpuledger.configagent.owners import Accounts, read_accounts
from gpuledger.configagent.plan import Observed, is_unit_file, make_plan, managed_files
from gpuledger.configagent.reboot import takes_reboot
from gpuledger.configagent.state import AgentMemory, AppliedConfig
from gpuledger.configagent.steps import SYSTEMD, Outcome, Plan, Step, Work
from gpuledger.configagent.tree import HostTree, OnStep
from gpuledger.configagent.unit_plan import MASK
from gpuledger.domain.machineconfig.desired import DesiredConfig
from gpuledger.domain.machineconfig.validation import (
    files_above,
    owner_problem,
    path_problem,
    repeated,
    state_problem,
    unit_problem,
)

PASSWD, GROUP = "/etc/passwd", "/etc/group"
PROBLEMS_SHOWN_MAX: Final = 5
STOPPED: Final = "The agent was stopped, or the node is to have another configuration by now."

GoOn = Callable[[], bool]
"""Whether to take the next step."""


class Applied(NamedTuple):
    """What became of a configuration; `error` is None where all of it is on the host."""

    outcomes: tuple[Outcome, ...]
    memory: AgentMemory
    error: str | None = None


def check_config(config: DesiredConfig) -> None:
    """Refuse what no configuration may have, though the renderer refuses it as well.

    Raises:
        RefusedConfigError: it has some.
    """
    problems = [f"{one.path} {text}" for one in config.files if (text := path_problem(one.path))]
    problems += [f"{one.path}: the owner {text}" for one in config.files if (text := owner_problem(one.owner))]
    problems += [
        f"{one.name} {text}"
        for one in config.units
        if (text := unit_problem(one.name) or state_problem(one.name, one.state))
    ]
    problems += [f"{one} occurs twice" for one in repeated([one.path for one in config.files])]
    problems += [f"{one} occurs twice" for one in repeated([one.name for one in config.units])]
    present = (one.path for one in config.files if one.state == "present")
    problems += [f"{above} is a file and a folder of {below} at once" for above, below in files_above(present)]
    if problems:
        raise RefusedConfigError(f"{config.name} is refused: {_shown(problems)}.")


def observe(host: Host, config: DesiredConfig, memory: AgentMemory) -> Observed:
    """The host, as far as the configuration and the earlier ones reach.

    Raises:
        ConfigAgentError: the host's accounts cannot be read, or systemd does not answer.
    """
    tree = HostTree(host.root, owned=host.owned)
    files, obstacles = {}, {}
    for path in {one.path for one in config.files} | memory.files.keys():
        try:
            files[path] = tree.status(path)
        except HostError as error:
            obstacles[path] = str(error)
    names = {one.name for one in config.units} | {*memory.masked}
    units = host.systemd.observe(names) if names else {}
    return Observed(_accounts(tree, config) if host.owned else None, files, obstacles, units)


def apply(
    host: Host, config: DesiredConfig, memory: AgentMemory, *, go_on: GoOn | None = None, on_step: OnStep | None = None
) -> Applied:
    """Bring the configuration onto the host.

    `go_on` is asked before each step; `on_step` is called before each part of one.

    Raises:
        ConfigAgentError: nothing was done: the configuration is refused, or the host cannot be looked at.
    """
    check_config(config)
    observed = observe(host, config, memory)
    plan = make_plan(config, observed, memory)
    if plan.problems:
        raise RefusedConfigError(f"{config.name} is not applied: {_shown(plan.problems)}")
    file, tree = MemoryFile(host.state_dir, on_step), HostTree(host.root, on_step, owned=host.owned)
    if memory.applied is None:
        for path in memory.files:
            tree.remove_part(path)
    memory = _begun(config, observed, plan, memory, host.boot_id())
    file.save(memory)
    worker = _Worker(host, tree, go_on or (lambda: True), on_step)
    outcomes, error = worker.take(plan)
    memory = _ended(config, observed, outcomes, memory, is_whole=error is None)
    file.save(memory)
    return Applied(outcomes, memory, error)


def drift(host: Host, memory: AgentMemory) -> list[str]:
    """The files of the configuration that somebody has changed since, and how.

    Raises:
        HostError: the disk cannot be read.
    """
    tree, found = HostTree(host.root, owned=host.owned), []
    for path, one in sorted(memory.files.items()):
        status = tree.status(path)
        if status != FileStatus("file", one.hash, one.mode, one.uid, one.gid):
            found.append(_difference(path, one.hash, status))
    return found


def drift_message(found: Iterable[str]) -> str:
    """What the node's annotation shows of files that were changed."""
    return f"content mismatch for {_shown(found)}. The next revision puts it back; to keep it, change a MachineConfig."


def _difference(path: str, expected: str, status: FileStatus) -> str:
    if status.kind != "file":
        return f"{path} (a file was applied, found: {status.kind})"
    if status.hash != expected:
        return f"{path} (hash {expected[:12]} was applied, found: {status.hash[:12]})"
    return f"{path} (its mode or owner was changed)"


class _Worker:
    """Takes the steps of one plan."""

    def __init__(self, host: Host, tree: HostTree, go_on: GoOn, on_step: OnStep | None) -> None:
        self._host = host
        self._tree = tree
        self._go_on = go_on
        self._on_step: OnStep = on_step or (lambda _: None)

    def take(self, plan: Plan) -> tuple[tuple[Outcome, ...], str | None]:
        """Take all steps up to one that fails; returns what became of each, and the error."""
        outcomes: list[Outcome] = []
        error: str | None = None
        for step in plan.steps:
            outcome = self._outcome(step, is_over=error is not None)
            outcomes.append(outcome)
            if error is None and outcome.outcome in ("failed", "not-applied"):
                error = outcome.message
        return tuple(outcomes), error

    def _outcome(self, step: Step, *, is_over: bool) -> Outcome:
        if not step.changes:
            return Outcome(step, "unchanged", step.note)
        if is_over:
            return Outcome(step, "not-applied")
        if not self._go_on():
            return Outcome(step, "not-applied", STOPPED)
        try:
            self._work(step)
        except ConfigAgentError as error:
            return Outcome(step, "failed", str(error))
        return Outcome(step, "changed", step.note)

    def _work(self, step: Step) -> None:
        if step.work is Work.WRITE and step.file is not None:
            self._tree.write(step.file)
        elif step.work is Work.REMOVE:
            self._tree.remove(step.subject)
        else:
            self._on_step(f"systemctl {step.action}")
            self._host.systemd.run(step.action, None if step.subject == SYSTEMD else step.subject)


def _begun(config: DesiredConfig, observed: Observed, plan: Plan, memory: AgentMemory, boot: str) -> AgentMemory:
    """What is on disk before the first step: all that the steps may do, whichever of them is the last."""
    tree_changes = [step.subject for step in plan.steps if step.work in (Work.WRITE, Work.REMOVE)]
    is_same = memory.begun == config.name
    due = memory.reboot_due
    if takes_reboot(config, plan, memory):
        due = boot
    elif not config.reboot_required:
        due = None
    return replace(
        memory,
        applied=memory.applied if is_same and not plan.changes else None,
        begun=config.name,
        under_way=True,
        acted=memory.acted if is_same and not tree_changes else (),
        files={**memory.files, **managed_files(config, observed, memory)},
        masked=tuple(sorted({*memory.masked, *(step.subject for step in plan.steps if step.action == MASK)})),
        reload_due=memory.reload_due or any(map(is_unit_file, tree_changes)),
        reboot_due=due,
    )


def _ended(
    config: DesiredConfig, observed: Observed, outcomes: Collection[Outcome], memory: AgentMemory, *, is_whole: bool
) -> AgentMemory:
    """What is on disk after the last step."""
    acted = {one.step.subject for one in outcomes if one.step.acts and one.outcome == "changed"}
    memory = replace(
        memory,
        acted=tuple(sorted({*memory.acted, *acted})),
        reload_due=memory.reload_due
        and not any(one.step.subject == SYSTEMD and one.outcome == "changed" for one in outcomes),
    )
    if not is_whole:
        return memory
    masking = {one.name for one in config.units if one.mask}
    return replace(
        memory,
        applied=AppliedConfig(
            config.name,
            config.config_hash,
            config.reboot_required,
            config.reboot_strategy,
            config.reboot_min_interval_s,
        ),
        previous_required=config.reboot_required,
        files=managed_files(config, observed, memory),
        masked=tuple(sorted({*memory.masked} & masking)),
    )


def _accounts(tree: HostTree, config: DesiredConfig) -> Accounts:
    """The host's accounts, if a file has another owner than root."""
    if all(one.owner == "root:root" for one in config.files):
        return read_accounts("", "")
    return read_accounts(*(tree.read(path).decode(errors="replace") for path in (PASSWD, GROUP)))


def _shown(problems: Iterable[str]) -> str:
    """The first problems, and how many more there are."""
    texts = [one.rstrip(".") for one in problems]
    more = f"; and {len(texts) - PROBLEMS_SHOWN_MAX} more" if len(texts) > PROBLEMS_SHOWN_MAX else ""
    return "; ".join(texts[:PROBLEMS_SHOWN_MAX]) + more
