"""A request for shared devices gets those of its own pod or nothing, whatever the kubelet and the agent go through."""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.agent.plugin.matching import Answered, ListedPods, ShareCall, ShareMatch, environment_of, match
from gpuledger.events.shares import PodShare
from gpuledger.events.sharing import ContainerShare
from support.shares import container, part_of, pod_share
from support.thoroughness import examples

RESOURCES = ("gpu-core", "gpu-memory-ratio")
AMOUNTS = st.sampled_from([20, 50])
"""Few, so that many pods ask for the same."""


class Kubelet:
    """A kubelet's pods: what each container has; it lists the one that it admits, and those that have ended."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, set[str]]] = {}

    def listed(self) -> ListedPods:
        return {
            ("default", name): {one: frozenset(resources) for one, resources in containers.items()}
            for name, containers in self.pods.items()
        }

    def end(self, name: str) -> None:
        """The pod has ended, or was rejected: it has nothing, and stays in the list."""
        self.pods[name] = {}


class Agent:
    """The agent's side: what the ledger says, and which containers it has answered."""

    def __init__(self, pods: Sequence[PodShare]) -> None:
        self.pods = pods
        self.answered: frozenset[Answered] = frozenset()


class Step(NamedTuple):
    """A pod is admitted, up to so many requests of it; and what happens after that."""

    pod: int
    requests_max: int
    then: str


def pods_of(shapes: list[tuple[int, list[tuple[int, int, bool]]]]) -> list[PodShare]:
    """Pods by the card that each has and the requests of its containers."""
    return [
        pod_share(
            f"p{number}",
            [part_of(card, 100, 100)],
            *(
                container(f"c{place}", init=init and len(containers) > 1, core=core, ratio=ratio)
                for place, (core, ratio, init) in enumerate(containers)
            ),
        )
        for number, (card, containers) in enumerate(shapes)
    ]


SHAPES = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.tuples(AMOUNTS, AMOUNTS, st.booleans()), min_size=1, max_size=2)),
    min_size=1,
    max_size=6,
)


def admitted(kubelet: Kubelet, agent: Agent, pod: PodShare, requests_max: int) -> bool:
    """Admit a pod; returns whether all its requests were answered, each with what is its own."""
    kubelet.pods[pod.pod] = {}
    requests = [(one, resource) for one in in_order(pod) for resource in RESOURCES]
    for one, resource in requests[:requests_max]:
        call = ShareCall(resource, one.requests[resource])
        found = match(call, agent.pods, kubelet.listed(), agent.answered)
        if not isinstance(found, ShareMatch):
            kubelet.end(pod.pod)
            return False
        allowed = [environment_of(pod, each) for each in pod.containers if each.requests[resource] == call.number]
        assert found.environment in allowed, "it is another pod's, or another part of its own"
        agent.answered |= {found.answered(call)}
        if not one.init:
            kubelet.pods[pod.pod].setdefault(one.name, set()).add(resource)
    return len(requests) <= requests_max


def in_order(pod: PodShare) -> list[ContainerShare]:
    return sorted(pod.containers, key=lambda one: not one.init)


@examples(2)
@given(SHAPES, st.lists(st.builds(Step, st.integers(0, 5), st.integers(0, 8), st.sampled_from(
    ["nothing", "it ends", "the agent restarts", "the kubelet forgets"])), max_size=12))  # fmt: skip
def test_nobody_gets_what_is_another_pods(
    shapes: list[tuple[int, list[tuple[int, int, bool]]]], steps: list[Step]
) -> None:
    pods = pods_of(shapes)
    kubelet, agent = Kubelet(), Agent(pods)
    for step in steps:
        pod = pods[step.pod % len(pods)]
        if kubelet.pods.get(pod.pod) is None and not admitted(kubelet, agent, pod, step.requests_max):
            kubelet.end(pod.pod)
        if step.then == "it ends":
            kubelet.end(pod.pod)
        elif step.then == "the agent restarts":
            agent.answered = frozenset()
        elif step.then == "the kubelet forgets":
            kubelet.pods.clear()
            agent.answered = frozenset()


@given(SHAPES, st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_all_pods_get_what_is_theirs_where_nothing_goes_wrong(
    shapes: list[tuple[int, list[tuple[int, int, bool]]]], order: list[int], ends: set[int]
) -> None:
    pods = pods_of(shapes)
    kubelet, agent = Kubelet(), Agent(pods)
    for number in order:
        if number < len(pods):
            assert admitted(kubelet, agent, pods[number], 99)
            if number in ends:
                kubelet.end(pods[number].pod)
