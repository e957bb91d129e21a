"""Why a pod has no shared devices: of each node what stands in the way, and in all one sentence."""

from collections.abc import Mapping

import pytest

from gpuledger.domain.fact import Fact
from gpuledger.domain.sharing.folds import HANDLERS
from gpuledger.domain.sharing.state import Sharing
from gpuledger.events.envelope import Decoded
from gpuledger.events.sharing import NodeDevicesShared, PodDevicesReleased, PodSharingObserved, SharedDevice
from gpuledger.tools.explain.shares import Obstacle, SharesAnswer, SharesFinding, grouped, shares_answer
from gpuledger.tools.explain.shares_document import shares_document
from gpuledger.tools.explain.shares_wording import ONLY_DEVICES, shares_notes, shares_words
from support.sharing import GIB, bound, gone, gpu, observed, of_gpus, released, reserved, share, shared, story

POD = "ml/a"
HALF = {"gpu-core": 50, "gpu-memory-ratio": 50}
NIC = gpu(0).model_copy(update={"type": "rdma", "id": "0000:09:00.0", "resources": {"rdma": 100}})
AVAILABLE = ("n1", 0.0, shared(gpu(0), gpu(1)))


def answer(*events: Decoded, only: str | None = None) -> SharesAnswer:
    state = Sharing()
    for position, one in enumerate(events, 1):
        HANDLERS[type(one.data)](state, Fact(one, position, 0), one.data)
    pod = state.shared_pod.get("u1")
    assert pod is not None
    return shares_answer(state, pod, only=only)


def waiting(requests: Mapping[str, int] = HALF, **hints: str) -> tuple[str, float, PodSharingObserved]:
    return POD, 9.0, observed(requests=requests).model_copy(update=hints)


def labelled(card: SharedDevice, **labels: str) -> SharedDevice:
    return card.model_copy(update={"labels": labels})


A100_ONLY = {"hint": '{"gpu": {"selector": {"matchLabels": {"model": "A100"}}}}'}


@pytest.mark.parametrize(
    ("node", "used", "requests", "hints", "obstacle", "resources", "best"),
    [
        (shared(NIC), None, HALF, {}, Obstacle.NO_DEVICES, (), {}),
        (
            shared(gpu(0)), share(0, 75), HALF, {},
            Obstacle.INSUFFICIENT, ("gpu-core", "gpu-memory-ratio"), {"gpu-core": 25, "gpu-memory-ratio": 25},
        ),
        (
            shared(gpu(0)), share(0, 50), {"gpu-core": 25, "gpu-memory": 9 * GIB}, {},
            Obstacle.INSUFFICIENT, ("gpu-memory",), {"gpu-core": 50, "gpu-memory": 8 * GIB},
        ),
        (
            shared(gpu(0), gpu(1)), share(0, 25), {"gpu": 200}, {},
            Obstacle.INSUFFICIENT, ("gpu-core", "gpu-memory-ratio"), {"gpu-core": 100, "gpu-memory-ratio": 100},
        ),
        (
            shared(gpu(0), gpu(1)), share(0), {"gpu": 300}, {}, Obstacle.TOO_FEW, (), {},
        ),
        (shared(gpu(0, healthy=False)), None, HALF, {}, Obstacle.UNHEALTHY, (), {}),
        (shared(labelled(gpu(0), model="H100")), None, HALF, A100_ONLY, Obstacle.NOT_SELECTED, (), {}),
        (
            shared(gpu(0), gpu(1)), None, {"gpu": 200},
            {"hint": '{"gpu": {"requiredTopologyScope": "PCIe"}}'}, Obstacle.PLACEMENT, (), {},
        ),
    ],
)  # fmt: skip
def test_what_stands_in_the_way(
    node: NodeDevicesShared,
    used: object,
    requests: Mapping[str, int],
    hints: Mapping[str, str],
    obstacle: Obstacle,
    resources: tuple[str, ...],
    best: Mapping[str, int],
) -> None:
    held = [] if used is None else [("ml/b", 1.0, observed("u3", node="n1", allocation={"gpu": (used,)}))]  # type: ignore[dict-item]
    found = answer(*story(("n1", 0, node), *held, waiting(requests, **hints)))
    assert found.finding is SharesFinding.REFUSED
    (one,) = found.obstacles
    assert (one.obstacle, one.resources, one.best) == (obstacle, resources, best)
    assert shares_words(found).startswith("it asks for ")


def test_enough_of_each_but_not_together() -> None:
    core = share(0).model_copy(update={"resources": {"gpu-core": 100}})
    memory = share(1).model_copy(update={"resources": {"gpu-memory-ratio": 100, "gpu-memory": 16 * GIB}})
    others = ("ml/b", 1.0, observed("u3", node="n1", allocation=of_gpus(core, memory)))
    found = answer(*story(AVAILABLE, others, waiting()))
    assert [one.obstacle for one in found.obstacles] == [Obstacle.FRAGMENTED]


def test_nodes_with_the_same_obstacle_are_one_reason_with_the_best_left_over() -> None:
    nodes = [(f"n{number}", 0.0, shared(gpu(0))) for number in range(1, 4)]
    used = [
        (f"ml/{number}", 1.0, observed(f"x{number}", node=f"n{number}", allocation=of_gpus(share(0, 100 - left))))
        for number, left in ((1, 10), (2, 40), (3, 20))
    ]
    found = answer(*story(*nodes, ("n4", 0, shared(NIC)), *used, waiting()))
    cores, without = grouped(found.obstacles)
    assert (cores.nodes, cores.best["gpu-core"]) == (("n1", "n2", "n3"), (40, "n2"))
    assert without.nodes == ("n4",)
    assert shares_words(found) == (
        "it asks for 1 gpu device with gpu-core 50 and gpu-memory-ratio 50, and none of the 4 nodes with shared "
        "devices takes it: 3 nodes (n1, n2, n3) with too little gpu-core and gpu-memory-ratio left on too many gpu "
        "devices, at most gpu-core 40 on n2, gpu-memory-ratio 40 on n2; 1 node (n4) without gpu devices"
    )
    alone = answer(*story(*nodes, *used, waiting()), only="n1")
    assert (alone.nodes, [one.node for one in alone.obstacles]) == (1, ["n1"])


OF_0 = "gpu 0 (gpu-core 50, gpu-memory 8Gi, gpu-memory-ratio 50) on node n1"
OF_1 = "gpu 1 (gpu-core 25, gpu-memory 4Gi, gpu-memory-ratio 25) on node n1"
HAND = observed(node="n1", allocation=of_gpus(share(1, 25)))
UNREADABLE = observed(node="n1").model_copy(update={"unreadable": "The annotation x is invalid: no JSON."})
WITHOUT = "it is bound to node n1 without shared devices"
ENDED = "it has ended, or is gone, and holds no shared devices"
SINCE = "since 2026-01-01T02:00:00+00:00, and it is not bound yet"
BY_HAND = f"it has {OF_1}, and not what was reserved for it, {OF_0}: somebody else wrote its annotation or bound it"
ALONE = "no node takes it: Invalid request: gpu-core does not stand alone; "
HINT = "no node takes it: The annotation device-allocate-hint is invalid: "
ASKS = "it asks for 1 gpu device with gpu-core 50 and gpu-memory-ratio 50"


@pytest.mark.parametrize(
    ("facts", "finding", "words"),
    [
        ([(POD, 2.0, gone())], SharesFinding.GONE, ENDED),
        ([(POD, 2.0, reserved())], SharesFinding.RESERVED, f"{OF_0} are reserved for it {SINCE}"),
        ([(POD, 2.0, reserved()), (POD, 3.0, bound())], SharesFinding.HAS, f"it has {OF_0}"),
        ([(POD, 2.0, reserved()), (POD, 3.0, HAND)], SharesFinding.HAS, BY_HAND),
        ([(POD, 3.0, observed(node="n1"))], SharesFinding.WITHOUT, f"{WITHOUT}, as its annotation names none"),
        ([(POD, 3.0, UNREADABLE)], SharesFinding.WITHOUT, f"{WITHOUT}: The annotation x is invalid: no JSON"),
        ([waiting({"gpu-core": 50})], SharesFinding.INVALID, ALONE),
        ([waiting(hint="{")], SharesFinding.INVALID, HINT),
        ([waiting()], SharesFinding.FITS, f"{ASKS}, and node n1 has them, so that it waits for its scheduler"),
        ([waiting({"gpu": 0})], SharesFinding.NOTHING, ""),
    ],
)
def test_the_answer_in_a_sentence(
    facts: list[tuple[str, float, PodSharingObserved]], finding: SharesFinding, words: str
) -> None:
    found = answer(*story(AVAILABLE, *facts))
    assert found.finding is finding
    assert shares_words(found).startswith(words)
    assert shares_document(found)["answer"] == shares_words(found)
    assert (ONLY_DEVICES in shares_notes(found)) is (finding is SharesFinding.FITS)


def test_a_scheduler_that_gives_no_devices_is_named() -> None:
    other = waiting()[2].model_copy(update={"scheduler": "default-scheduler"})
    found = answer(*story(AVAILABLE, (POD, 9, other)))
    assert shares_words(found).endswith(
        "node n1 has them; its schedulerName is default-scheduler, which has not given any pod shared devices"
    )
    placed = observed("u3").model_copy(update={"scheduler": "default-scheduler"})
    found = answer(*story(AVAILABLE, ("ml/b", 1, placed), ("ml/b", 2, reserved("u3")), (POD, 9, other)))
    assert (found.has_other_scheduler, found.schedulers) == (False, ("default-scheduler",))


def test_what_was_released_last_is_said() -> None:
    why = PodDevicesReleased(uid="u1", node="n1", reason="BindingFailed", message="the node is gone.")
    found = answer(*story(AVAILABLE, (POD, 2, reserved()), (POD, 3, why), waiting()))
    assert shares_words(found).endswith(
        "; what was reserved for it last was released at 2026-01-01T03:00:00+00:00 (BindingFailed: the node is gone)"
    )
    assert shares_document(found)["released"]["reason"] == released().reason


def test_no_node_shares_anything() -> None:
    found = answer(*story(waiting()))
    assert (found.finding, found.nodes) == (SharesFinding.NOT_SHARED, 0)
    assert shares_words(found).endswith("and no node shares devices")
