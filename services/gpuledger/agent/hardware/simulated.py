"""Simulated cards for tests, demonstrations and benchmarks, which take injected faults.

They behave as a driver does, from any number of threads. Nothing outlives the object: the same spec, node and seed give
the same cards again, unpartitioned and healthy.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Condition
from time import monotonic
from typing import Final

from gpuledger.agent.hardware.api import WHOLE_CARD, Readings, Survey, Unregistered, Xid
from gpuledger.agent.hardware.errors import CardLostError, DriverMissingError, HardwareError
from gpuledger.agent.hardware.simulated_card import SimulatedCard
from gpuledger.agent.hardware.simulated_faults import (
    DRIVER_MISSING,
    FAULTS,
    HANG,
    RECOVER,
    XID,
    InjectedFault,
    find_target,
    parse_fault,
)
from gpuledger.agent.hardware.simulated_models import parse_cards
from gpuledger.agent.hardware.simulated_node import node_cards
from gpuledger.domain.mig.geometry import Instance

DRIVER_VERSION: Final = "570.133.20"
CUDA_VERSION: Final = "12.8"
REFUSED: Final = Unregistered("Refused", "The simulated driver refuses it; inject `recover` to end that.")
XIDS_MAX: Final = 16_384
"""How many errors wait for a reader; beyond that the oldest are dropped."""


class SimulatedHardware:
    """`api.NodeHardware` of the cards that a spec such as `8xH100` or `2xH200,1xT4` names.

    Raises:
        HardwareSpecError: there are no such cards.
    """

    kind = "simulated"

    def __init__(self, spec: str, *, node: str = "simulated", seed: int = 0) -> None:
        models = parse_cards(spec)
        facts = node_cards(models, node=node, seed=seed)
        self._cards = {
            each.address: SimulatedCard(each, remaps_rows=model.remaps_rows)
            for each, model in zip(facts, models, strict=True)
        }
        self._xids: deque[Xid] = deque(maxlen=XIDS_MAX)
        self._changed = Condition()
        self._driver_missing = self._hung = self._closed = False

    def survey(self) -> Survey:
        """See `NodeHardware.survey`."""
        with self._responding():
            cards = tuple(card.surveyed(driver=not self._driver_missing) for card in self._cards.values())
            if self._driver_missing:
                return Survey(cards, driver_missing=True)
            return Survey(cards, DRIVER_VERSION, CUDA_VERSION)

    def readings(self, address: str) -> Readings:
        """See `NodeHardware.readings`."""
        with self._answering(address) as card:
            return card.readings

    def wait_xid(self, timeout_s: float) -> Xid | None:
        """See `NodeHardware.wait_xid`. A driver that hangs still reports errors."""
        until = monotonic() + timeout_s
        with self._changed:
            self._check_open()
            self._check_driver()
            while not self._xids and (left := until - monotonic()) > 0 and not self._closed:
                self._changed.wait(left)
                self._check_driver()
            return self._xids.popleft() if self._xids else None

    def unregistered(self) -> Mapping[str, Unregistered]:
        """See `NodeHardware.unregistered`."""
        cards = self._cards.items()
        return {} if self._driver_missing else {address: REFUSED for address, card in cards if card.refuses_events}

    def users(self, address: str) -> frozenset[str]:
        """See `NodeHardware.users`."""
        with self._answering(address) as card:
            return frozenset(card.users)

    def set_mig(self, address: str, *, enabled: bool) -> bool:
        """See `NodeHardware.set_mig`."""
        with self._answering(address) as card:
            return card.set_mig(enabled=enabled)

    def create_instance(self, address: str, profile: str, start: int) -> Instance:
        """See `NodeHardware.create_instance`."""
        with self._answering(address) as card:
            return card.create_instance(profile, start)

    def destroy_instance(self, address: str, uuid: str) -> None:
        """See `NodeHardware.destroy_instance`."""
        with self._answering(address) as card:
            card.destroy_instance(uuid)

    def close(self) -> None:
        """See `NodeHardware.close`. Calls that hang end with an error."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def use(self, address: str, uuid: str = WHOLE_CARD) -> None:
        """Let a process use an instance, or the card itself; ValueError where there is none."""
        with self._changed:
            self._card(address).use(uuid)

    def free(self, address: str, uuid: str = WHOLE_CARD) -> None:
        """End what `use` began."""
        with self._changed:
            self._card(address).users.discard(uuid)

    def inject(self, text: str) -> str:
        """Inject a fault of `simulated_faults` at once; returns what happened, as text for people.

        Raises:
            InjectedFaultError: there is no such fault, or no card that could have it.
        """
        fault = parse_fault(text)
        with self._changed:
            message = self._inject_node(fault)
            self._changed.notify_all()
            return message

    def _inject_node(self, fault: InjectedFault) -> str:
        if fault.name == DRIVER_MISSING:
            self._driver_missing = True
        elif fault.name == HANG:
            self._hung = True
        elif fault.name == RECOVER and fault.target is None:
            return self._recover()
        else:
            return self._inject_card(fault)
        return f"{fault.name}: {FAULTS[fault.name]}."

    def _recover(self) -> str:
        self._driver_missing = self._hung = False
        for card in self._cards.values():
            card.reset()
        return f"{RECOVER}: all {len(self._cards)} cards were reset and are well, and the driver answers."

    def _inject_card(self, fault: InjectedFault) -> str:
        facts = [card.facts for card in self._cards.values()]
        found = facts[find_target(facts, fault.target)]
        self._cards[found.address].apply_fault(fault)
        on = f"{found.address} ({found.product})"
        if fault.xid is None:
            return f"{fault.name} on {on}: {FAULTS[fault.name]}."
        if self._cards[found.address].refuses_events:
            return f"{XID}:{fault.xid} on {on}: the driver refuses to report it."
        self._xids.append(Xid(found.address, fault.xid))
        return f"{XID}:{fault.xid} on {on}: the driver reports the error."

    @contextmanager
    def _responding(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._hung)
            self._check_open()
            yield

    @contextmanager
    def _answering(self, address: str) -> Iterator[SimulatedCard]:
        with self._responding():
            self._check_driver()
            yield self._card(address).must_answer()

    def _card(self, address: str) -> SimulatedCard:
        card = self._cards.get(address)
        if card is None:
            raise CardLostError(f"There is no card at {address}; there are {', '.join(self._cards)}.")
        return card

    def _check_open(self) -> None:
        if self._closed:
            raise HardwareError("The simulated hardware was closed.")

    def _check_driver(self) -> None:
        if self._driver_missing:
            raise DriverMissingError("The simulated driver is missing; inject `recover` to have it back.")
