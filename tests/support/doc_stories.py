"""Which commands of the pages a test runs, in which order and with which outcome, and which none can run, and why.

A command of a page is in a section of a story, or in `NOT_RUN`; a test says where one is in neither.
"""

from typing import Final, NamedTuple

from support.doc_pages import Command


class Expected(NamedTuple):
    """What becomes of the commands that begin so, or whose comment does; all others succeed.

    They are repeated until it is so.
    """

    begins: str
    code: int = 0
    shows: str = ""
    """A pattern of the output. A watch ends when it has shown it."""

    until: str = ""
    """For a `sleep`, and for what serves: what succeeds when the reader has waited long enough."""


class Story(NamedTuple):
    """Sections that are read one after the other, in one folder."""

    name: str
    sections: tuple[tuple[str, str], ...]
    expected: tuple[Expected, ...] = ()

    def outcome(self, command: Command) -> Expected:
        """What becomes of a command."""
        return next((one for one in self.expected if _begins(command, one.begins)), Expected(""))


def _begins(command: Command, beginning: str) -> bool:
    return command.text.startswith(beginning) or command.comment.startswith(beginning)


class NotRun(NamedTuple):
    """Commands of a page that begin so, and why no test runs them; that they exist is checked all the same."""

    page: str
    begins: str
    reason: str
    sections: frozenset[str] = frozenset()
    """Where; empty: on the whole page."""

    def names(self, command: Command) -> bool:
        """Whether it is about a command."""
        there = command.page == self.page and (not self.sections or command.section in self.sections)
        return there and command.text.startswith(self.begins)


README: Final = "README.md"
INSTALLING: Final = "docs/installing.md"

FIRST_STEPS: Final = Story(
    "first-steps",
    (
        (README, "First steps"),
        ("docs/reports.md", "Any query at any moment"),
        ("docs/operations.md", "Archive"),
        ("docs/reports.md", "Archives"),
        ("docs/operations.md", "Closing a generation"),
        ("docs/operations.md", "Quarantine of nodes"),
        ("docs/operations.md", "Remediation of nodes"),
    ),
)
LAB: Final = Story(
    "lab",
    tuple(
        (README, section) for section in ("A simulated fleet for kubectl", "Devices shared by claims", "On the node")
    ),
    (
        Expected("kubectl get gpudevices -w", shows=r" false "),
        Expected("kubectl get nodes -w", shows=r"SchedulingDisabled"),
        Expected("gpuledger incident list", shows=r" SysLogsXIDError .* true "),
        Expected("gpuledger quarantine rules", shows=r"GPU fatal error ruleset +true "),
        Expected("gpuledger get maintenance", shows=r" operators/\S+ +new fans .* Finished "),
        Expected("kubectl get resourceslicestatuses", shows=r"\nshelf-gpus +2 +0 +1 "),
        Expected("gpuledger describe slice", shows=r"Tainted"),
        Expected("kubectl gpuledger why claim", shows=r"2 devices requested, 1 available: 1 tainted"),
        Expected("gpuledger agent probe  ", code=1),
    ),
)
POOLS: Final = Story(
    "pools",
    ((README, "GPUs in pools"), ("docs/kubernetes.md", "What if a pool were different")),
    (
        Expected("kubectl get gpudevices    ", shows=r" Ready "),
        Expected("kubectl get gpudevices -l", shows=r" Assigned "),
        Expected("kubectl get clustergpupools", shows=r"training.* 2 "),
        Expected("gpuledger timeline device", shows=r"assignment"),
        Expected("kubectl create -f -", code=1, shows=r"NamespaceNotEnabled"),
    ),
)
SHARES: Final = Story(
    "shares",
    ((README, "Half a GPU"), ("docs/sharing.md", "Who has which card")),
    (
        Expected("kubectl get gpudevices", shows=r" Ready "),
        Expected("kubectl get pods -w", shows=r"(?s)(half.* 1/1 +Running .*){2}"),
        Expected("gpuledger get gpus    ", shows=r"100% +100% .*default/half-a-gpu, *default/other-half"),
        Expected("gpuledger why pod default/third -o json", shows=r"HasDevices"),
        Expected("gpuledger why pod", shows=r"Insufficient gpu"),
        Expected("kubectl get pods    ", shows=r"third +1/1 +Running"),
        Expected("kubectl get pod third", shows=r"scheduling.kooperator/device-allocated"),
        Expected("gpuledger get gpus -o wide", shows=r" 100% +100% .*default/other-half, *default/third"),
        Expected("gpuledger get shares --all", shows=r"(?s)half-a-gpu.*other-half.*third"),
        Expected("gpuledger report packing", shows=r"(?s)all .*node "),
    ),
)
NODE_AGENT: Final = Story(
    "node-agent",
    (("docs/node-agent.md", "Try it without a GPU"), ("docs/node-agent.md", "Health monitors")),
    (
        Expected("NATS_URL=", until="curl -s 127.0.0.1:9500/healthz"),
        Expected("gpuledger get failures", shows=r"XID 79 .*w1/0000:31:00.0"),
        Expected("curl -s 127.0.0.1:9500/metrics", shows=r"card_unfit"),
        # Eight cards are healthy at first, one fails and is gone from the second survey, and then is healthy again.
        Expected("sleep 10", until="test $(gpuledger log tail -n 500 | grep -c node.devices-observed) -ge 2"),
        Expected("sleep 20", until="test $(gpuledger log tail -n 500 | grep -c health-changed) -ge 10"),
        Expected("the last except heartbeats", shows=r"health-changed"),
        Expected("node.health-reported", shows=r"node.health-reported +w1"),
        Expected("node.devices-wanted", shows=r"node.devices-wanted +w1"),
        Expected("kubectl get gpudevices", shows=r"(?s)( Ready .*){8}"),
        Expected("gpuledger describe pool", shows=r"training"),
    ),
)
INCIDENT: Final = Story(
    "incident",
    (
        (README, "An incident, from XID to uncordon"),
        ("docs/operations.md", "Why a node is set aside"),
        ("docs/operations.md", "Bundles"),
    ),
    (
        Expected("NATS_URL=", until="curl -s 127.0.0.1:9501/healthz"),
        # The survey that misses the card: one that is reset before stays unfit for minutes.
        Expected(
            "sleep 10",
            until="kubectl get nodes | grep -q SchedulingDisabled"
            " && test $(gpuledger log tail -n 500 | grep -c node.devices-observed) -ge 2",
        ),
        Expected("w1 is cordoned", shows=r"w1 .*SchedulingDisabled"),
        Expected("gpuledger incident list", shows=r"w1 +DeviceHealth .* XID 79 "),
        Expected("gpuledger get maintenance", shows=r"w1 +health/GPU fatal error ruleset .* Applied "),
        Expected("sleep 20", until="test $(kubectl get nodes | grep -c SchedulingDisabled) -eq 0"),
        Expected("w1 takes pods again", shows=r"w1 +\S*Unknown "),
        Expected("gpuledger why node w1 --at", shows=r"w1 is not set aside: nobody has requested it"),
        Expected("gpuledger why node w1", shows=r"(?s)reported.*cordoned.*given back.*w1 is not set aside"),
        Expected(
            "gpuledger timeline node", shows=r"(?s)maintenance-requested.*isolation-applied.*maintenance-released"
        ),
        Expected("gpuledger report mttr", shows=r"check +DeviceHealth +1 "),
        Expected(
            "gpuledger incident open", shows=r"(?s)by the expected key .*node-[0-9a-f]{16}.*maintenance-requested"
        ),
    ),
)
PREFLIGHT: Final = Story(
    "preflight",
    ((README, "Checks before a workload starts"),),
    (
        Expected("kubectl get mutatingwebhookconfigurations", shows=r"gpuledger-preflight"),
        Expected("kubectl get pods -n training -w", shows=r"trainer-1 .* Init:CrashLoopBackOff "),
        Expected("gpuledger preflight show", shows=r"(?s)nccl-loopback +0 +ended +failed +1 +NCCL_SYSTEM_ERROR"),
        Expected("gpuledger why pod", shows=r"check nccl-allreduce .*; training/trainer-1 failed at nccl-loopback"),
        Expected("gpuledger incident list", shows=r" preflight-nccl-loopback .* true +NCCL_SYSTEM_ERROR "),
        Expected("kubectl get nodes", shows=r"SchedulingDisabled"),
        Expected("kubectl get pods -n training    ", shows=r"(?s)(trainer-\d +1/1 +Running .*){3}"),
        Expected("gpuledger preflight list", shows=r"training/trainer-1 +nccl-allreduce .* passed "),
        Expected("gpuledger report preflight", shows=r"check on node +nccl-loopback "),
    ),
)
MACHINE_CONFIG: Final = Story(
    "machine-config",
    ((README, "Roll out a machine configuration"),),
    (
        Expected("kubectl get machineconfigpools -w", shows=r"gpu +rendered-gpu-\w+ +rendered-gpu-\w+ +3 +3 +3 "),
        Expected("what the node's agent wrote", shows=r"somaxconn = 4096"),
        Expected("gpuledger config diff", code=1, shows=r"(?s)\+net.core.somaxconn = 8192.*3 nodes of 3 would change"),
        Expected("gpuledger config status", shows=r"1 in flight"),
        Expected("soon none is SchedulingDisabled", shows=r"(?s)\A(?!.*SchedulingDisabled)(.* Ready .*){3}"),
        Expected("soon all three are updated", shows=r" 3 +3 +3 .*RolloutComplete"),
        Expected("soon as it was", shows=r"somaxconn = 4096"),
        Expected("gpuledger config history", shows=r"(?s)rendered-gpu-.*rendered-gpu-"),
        Expected("gpuledger report config-updates", shows=r"hopper-"),
    ),
)
KUBE_COMMANDS: Final = Story(
    "kube-commands",
    (
        *(("docs/kube-commands.md", section) for section in ("Without a ledger", "get", "why", "As a kubectl plugin")),
        ("docs/reports.md", "Drawings"),
    ),
    (
        Expected(
            "gpuledger why claim team-a/train --at", code=1, shows="not found at 2026-03-01"
        ),  # the lab is younger
        Expected("gpuledger why claim", shows="Answer:"),
        Expected("kubectl gpuledger why claim", shows="Answer:"),
        Expected("gpuledger describe slice", shows="gpu-0"),
        Expected("gpuledger get slices", shows="w1-gpu"),
        Expected("gpuledger get nodes --kube", shows="w1"),
    ),
)
CHART: Final = Story(
    "chart",
    (
        *((INSTALLING, section) for section in ("Servers of your own", "The agent of the nodes")),
        *((INSTALLING, section) for section in ("Tokens instead of credentials", "Automatic approval")),
        ("docs/kubernetes.md", "Settings of the module"),
        *((INSTALLING, section) for section in ("Roles for people", "The coverage job", "Upgrade")),
        ("docs/presets.md", "Policies"),
        (INSTALLING, "Uninstall"),
    ),
)
STORIES: Final = (
    FIRST_STEPS,
    LAB,
    POOLS,
    SHARES,
    NODE_AGENT,
    INCIDENT,
    PREFLIGHT,
    MACHINE_CONFIG,
    KUBE_COMMANDS,
    CHART,
)

DRILLS: Final = frozenset({"Take a pair", "Bring back both", "Bring back PostgreSQL alone", "Bring back NATS alone"})
NOT_RUN: Final = (
    NotRun(README, "make demo", "tests/golden/test_transcript.py runs `gpuledger demo`"),
    NotRun(README, "make test", "it is what runs this test"),
    NotRun(
        "docs/agent-credentials.md",
        "gpuledger ",
        "tests/integration/test_auth_callout.py and its neighbours run them on real servers, in each mode",
        frozenset({"Service account tokens", "Operator mode"}),
    ),
    NotRun(
        "docs/sharing.md",
        "kubectl label node",
        "tests/integration/kube/test_sharing_nodes.py labels Nodes of an API server, and looks at what follows",
        frozenset({"Giving a node's cards to sharing"}),
    ),
    NotRun(
        "docs/sharing.md",
        "gpuledger schedule simulate",
        "tests/unit/cli/test_schedule.py runs it on lists of its own; the trace is no part of this repository",
    ),
    NotRun(
        "docs/sharing.md",
        "gpuledger what-if strategy",
        "tests/integration/test_cli_what_if_strategy.py runs it on pods that were recorded",
    ),
    NotRun(
        "docs/kube-commands.md",
        "gpuledger ",
        "tests/integration/test_cli_machine_config.py and tests/integration/kube/test_cli_config_pools.py run them",
        frozenset({"Machine configuration"}),
    ),
    NotRun("docs/agent-credentials.md", "nsc ", "a program of NATS, which is not here"),
    NotRun(
        INSTALLING,
        "helm --namespace gpu-system install",
        "tests/integration/test_cluster.py installs so, and runs the pods",
        frozenset({"Install"}),
    ),
    NotRun(
        INSTALLING,
        "kubectl ",
        "tests/integration/kube/test_admission_break_glass.py acts as the group, which the embedded API server lets in",
        frozenset({"Break-glass"}),
    ),
    NotRun(
        INSTALLING,
        "kubectl --namespace gpu-system delete configmap",
        "test_postgres_members.py has three servers, which run in pods of the image",
    ),
    NotRun(
        INSTALLING,
        "kubectl --namespace gpu-system get pods --label-columns role",
        "test_postgres_members.py has three servers, which run in pods of the image",
    ),
    NotRun(
        INSTALLING,
        "kubectl --namespace gpu-system delete statefulset gpuledger-postgres",
        "test_postgres_members.py moves one server to three, in pods of the image",
    ),
    NotRun(
        INSTALLING,
        "helm --namespace gpu-system upgrade gpuledger charts/gpuledger --reset-then-reuse-values --set postgresql",
        "test_postgres_members.py moves one server to three, in pods of the image",
    ),
    NotRun(INSTALLING, "docker ", "there is no container engine, and no registry"),
    NotRun(INSTALLING, "kubectl --namespace gpu-system logs ", "the embedded API server serves no logs"),
    NotRun(INSTALLING, "kubectl --namespace gpu-system exec ", "the embedded API server runs nothing in pods"),
    NotRun("docs/kube-api.md", "KUBEBUILDER_ASSETS=", "the programs of a real API server are not here"),
    NotRun(
        "docs/operations.md",
        "kubectl --namespace gpu-system exec ",
        "the embedded API server runs nothing in pods",
        frozenset({"A pair of the chart's servers"}),
    ),
    NotRun("docs/operations.md", "", "tests/integration/test_restore_drills.py runs these very commands", DRILLS),
    NotRun("docs/presets.md", "helm ", "the embedded API server lacks Deckhouse's kinds; the page's file is templated"),
)


def reason_not_to_run(command: Command) -> NotRun | None:
    """Why no test runs a command; None if one does."""
    return next((one for one in NOT_RUN if one.names(command)), None)


def commands_of(story: Story, commands: tuple[Command, ...]) -> list[Command]:
    """The commands that a story runs, in its order."""
    return [
        command
        for section in story.sections
        for command in commands
        if (command.page, command.section) == section and reason_not_to_run(command) is None
    ]
