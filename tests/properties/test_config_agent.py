"""Whatever is on a host and whatever it is to have, one after the other: the agent leaves exactly that, and once."""

import os
import stat
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuledger.configagent.apply import apply, drift
from gpuledger.configagent.dry_run import dry_run
from gpuledger.configagent.memory_file import MemoryFile
from gpuledger.configagent.reboot import RebootStep, next_step
from gpuledger.configagent.state import AgentMemory, AppliedConfig, RebootRequest, memory_document, read_memory
from gpuledger.configagent.tree import PART_SUFFIX, part_name
from gpuledger.domain.machineconfig.desired import DesiredConfig
from support.config_agent import AT, FakeMachine, config, file

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")

PATHS: Final = ("/etc/a", "/etc/b", "/etc/d/a", "/etc/d/e/b", "/opt/x", "/etc/systemd/system/u.service")
ACCOUNTS: Final = ("/etc/passwd", "/etc/group")
CONTENTS: Final = st.sampled_from(("", "1", "zwei\n", "ünf" * 400))
Tree = dict[str, tuple[str, int]]

files = st.builds(
    file, st.sampled_from(PATHS), CONTENTS, mode=st.sampled_from((0o600, 0o644, 0o755)), present=st.booleans()
)
configs = st.lists(files, max_size=5, unique_by=lambda one: one.path).map(config)
edits = st.dictionaries(st.sampled_from(PATHS), CONTENTS, max_size=2)
trees = st.dictionaries(st.sampled_from(PATHS), CONTENTS, max_size=4)


def tree_of(machine: FakeMachine) -> Tree:
    found = (path for path in machine.root.rglob("*") if path.is_file())
    named = {
        f"/{path.relative_to(machine.root)}": (path.read_text(), stat.S_IMODE(path.stat().st_mode)) for path in found
    }
    return {path: one for path, one in named.items() if path not in ACCOUNTS}


def put(machine: FakeMachine, path: str, content: str) -> None:
    target = machine.path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)


class Model:
    """What a host has to have after each configuration, by the rules alone."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.ours: dict[str, tuple[bool, tuple[str, int]]] = {}

    def take(self, desired: DesiredConfig) -> None:
        paths = {one.path for one in desired.files}
        for path, (is_new, written) in self.ours.items():
            if path not in paths and is_new and self.tree.get(path) == written:
                del self.tree[path]
        present = [one for one in desired.files if one.state == "present"]
        self.ours = {one.path: (self._is_new(one.path), (one.content, one.mode)) for one in present}
        for one in desired.files:
            self.tree.pop(one.path, None)
        self.tree |= {path: written for path, (_, written) in self.ours.items()}

    def _is_new(self, path: str) -> bool:
        """Whether there was no such file before a configuration had one."""
        return self.ours[path][0] if path in self.ours else path not in self.tree


@settings(max_examples=40)
@given(before=trees, steps=st.lists(st.tuples(edits, configs), min_size=1, max_size=4))
def test_a_host_has_what_its_configurations_say(
    before: dict[str, str], steps: list[tuple[dict[str, str], DesiredConfig]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = FakeMachine(Path(folder))
        for path, content in before.items():
            put(machine, path, content)
        model = Model(tree_of(machine))
        for edited, desired in steps:
            for path, content in edited.items():
                put(machine, path, content)
            model.tree = tree_of(machine)
            _, lines = dry_run(machine.host, desired)
            assert tree_of(machine) == model.tree, lines
            done = apply(machine.host, desired, MemoryFile(machine.state).load())
            assert done.error is None
            model.take(desired)
            assert tree_of(machine) == model.tree
            assert drift(machine.host, done.memory) == []
            again = apply(machine.host, desired, done.memory)
            assert {one.outcome for one in again.outcomes} <= {"unchanged"}
            assert MemoryFile(machine.state).load() == again.memory == done.memory


@given(
    current=st.none() | st.just("rendered-a-0"),
    strategy=st.sampled_from(("Never", "IfRequired")),
    due=st.none() | st.sampled_from(("boot-0", "boot-1")),
    requested=st.none() | st.sampled_from(("boot-0", "boot-1")),
    forgotten=st.none() | st.sampled_from(("boot-0", "boot-1")),
    passed_s=st.integers(-3000, 3000),
)
def test_a_reboot_is_asked_for_only_where_it_may_be(
    current: str | None, strategy: str, due: str | None, requested: str | None, forgotten: str | None, passed_s: int
) -> None:
    applied = AppliedConfig("rendered-a-1", "0" * 64, True, strategy, 1800)
    asked = None if requested is None else RebootRequest(AT, requested)
    memory = AgentMemory(current=current, applied=applied, reboot_due=due, requested=asked, forgotten=forgotten)
    assert read_memory(memory_document(memory)) == memory
    now = AT + timedelta(seconds=passed_s)
    memory = memory.by_clock(now)
    assert memory.requested is None or memory.requested.at == min(AT, now)
    decision = next_step(memory, "boot-1", now, within_s=600)
    may_reboot = due == "boot-1" and strategy == "IfRequired"
    assert (decision.step is RebootStep.REBOOT) == (
        may_reboot and forgotten != "boot-1" and (requested is None or (requested == "boot-0" and passed_s >= 1800))
    )
    assert (decision.step is RebootStep.OVERDUE) == (may_reboot and requested == "boot-1" and passed_s >= 600)
    assert 0 <= decision.wait_s <= 60


@given(name=st.text(min_size=1, max_size=255).filter(lambda one: 0 < len(one.encode()) <= 255 and "/" not in one))
def test_the_part_of_a_file_has_a_name_that_the_disk_takes(name: str) -> None:
    assert len(part_name(name).encode()) <= 255
    assert part_name(name).endswith(PART_SUFFIX)
