"""A recorded machine: it shows what the recording holds, and is partitioned by the rules of real cards.

Readings advance with each poll and stay at the last. Changes never reach the recording.
"""

from collections.abc import Mapping
from threading import Event, Lock
from typing import Final
from uuid import UUID, uuid5

from gpuledger.agent.hardware.api import CardFacts, Readings, Survey, Unregistered, Xid
from gpuledger.agent.hardware.errors import BusyError, CardLostError, DriverMissingError, UnsupportedError
from gpuledger.agent.hardware.recording import CardSamples, Recording
from gpuledger.agent.hardware.simulated_card import with_instance, with_instances
from gpuledger.domain.mig.geometry import Instance

_NAMES: Final = UUID("0f5f3c1e-6f0e-4a57-9a3c-4f6d2c0f8a55")


class RecordedHardware:
    """`api.NodeHardware` of a recording; its cards report no errors."""

    kind = "recorded"

    def __init__(self, recording: Recording) -> None:
        self._survey = recording.survey
        self._cards = {card.address: card for card in recording.survey.cards}
        self._moments = {each.address: each for each in recording.moments}
        self._polls = dict.fromkeys(self._cards, 0)
        self._created = 0
        self._lock = Lock()
        self._closed = Event()

    def survey(self) -> Survey:
        """See `NodeHardware.survey`."""
        with self._lock:
            return self._survey._replace(cards=tuple(self._cards.values()))

    def readings(self, address: str) -> Readings:
        """See `NodeHardware.readings`."""
        with self._lock:
            self._card(address)
            recorded = self._samples_of(address).readings
            poll, self._polls[address] = self._polls[address], self._polls[address] + 1
        readings = recorded[min(poll, len(recorded) - 1)] if recorded else None
        if readings is None:
            raise CardLostError(f"The card at {address} did not answer when it was recorded.")
        return readings

    def wait_xid(self, timeout_s: float) -> Xid | None:
        """See `NodeHardware.wait_xid`."""
        self._must_have_driver()
        self._closed.wait(timeout_s)
        return None

    def unregistered(self) -> Mapping[str, Unregistered]:
        """See `NodeHardware.unregistered`."""
        return {}

    def users(self, address: str) -> frozenset[str]:
        """See `NodeHardware.users`."""
        with self._lock:
            self._answering_card(address)
            return self._users(address)

    def set_mig(self, address: str, *, enabled: bool) -> bool:
        """See `NodeHardware.set_mig`."""
        with self._lock:
            card = self._answering_card(address)
            if card.mig_enabled is None:
                raise UnsupportedError(f"The card at {address} has no MIG; use another kind of pool for it.")
            if card.mig_enabled != enabled and (card.instances or self._users(address)):
                raise BusyError(f"The card at {address} is in use, or partitioned: its MIG mode cannot change.")
            self._cards[address] = card._replace(mig_enabled=enabled, mig_pending=False)
            return True

    def create_instance(self, address: str, profile: str, start: int) -> Instance:
        """See `NodeHardware.create_instance`."""
        with self._lock:
            card = self._answering_card(address)
            self._created += 1
            uuid = f"MIG-{uuid5(_NAMES, f'{address}/{profile}/{start}/{self._created}')}"
            self._cards[address], instance = with_instance(card, profile, start, uuid)
            return instance

    def destroy_instance(self, address: str, uuid: str) -> None:
        """See `NodeHardware.destroy_instance`."""
        with self._lock:
            card = self._answering_card(address)
            left = tuple(instance for instance in card.instances if instance.uuid != uuid)
            if left != card.instances and uuid in self._users(address):
                raise BusyError(f"A process uses {uuid} on {address}; wait until it ends.")
            self._cards[address] = with_instances(card, left)

    def close(self) -> None:
        """See `NodeHardware.close`."""
        self._closed.set()

    def _card(self, address: str) -> CardFacts:
        self._must_have_driver()
        if address not in self._cards:
            raise CardLostError(f"There was no card at {address}; there were {', '.join(self._cards) or 'none'}.")
        return self._cards[address]

    def _answering_card(self, address: str) -> CardFacts:
        card = self._card(address)
        if card.uuid is None:
            raise CardLostError(f"The card at {address} did not answer when it was recorded.")
        return card

    def _must_have_driver(self) -> None:
        if self._survey.driver_missing:
            raise DriverMissingError("The machine had no driver when it was recorded.")

    def _samples_of(self, address: str) -> CardSamples:
        return self._moments.get(address, CardSamples(address))

    def _users(self, address: str) -> frozenset[str]:
        users = self._samples_of(address).users
        if users is None:
            raise UnsupportedError(f"The users of the card at {address} were unknown when it was recorded.")
        return users
