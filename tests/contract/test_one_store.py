"""What is remembered of a store is forgotten whenever another one may have taken its place."""

from gpuledger.ledger.client import LedgerClient
from gpuledger.ledger.connect import Connection, connected
from gpuledger.ledger.one_store import Remembered, store_of

OURS = "127.0.0.1:4222"
ANOTHER = "127.0.0.1:4223"


async def learn(client: LedgerClient, *servers: str) -> None:
    """Take what a server says of the members of its cluster."""
    await client._process_info({"connect_urls": list(servers)})


async def test_what_was_learnt_over_an_earlier_connection_is_forgotten() -> None:
    connection = Connection("nats://test")
    remembered = Remembered[int, str](connection, 2)
    remembered.put(1, "one")
    assert remembered.get(1) == "one"
    connection.times_connected += 1
    assert remembered.get(1) is None
    remembered.put(2, "two")
    assert remembered.get(2) == "two"


async def test_what_was_learnt_before_another_server_left_the_cluster_is_forgotten(nats_url: str) -> None:
    """The connection to our own stands all the time, and the stream may have been the other one's."""
    async with connected(nats_url, name="test") as connection:
        await learn(connection.client, OURS)
        await learn(connection.client, OURS, ANOTHER)
        remembered, store = Remembered[int, str](connection, 2), store_of(connection)
        remembered.put(1, "one")
        await learn(connection.client, OURS, ANOTHER)
        assert (remembered.get(1), store_of(connection)) == ("one", store)
        await learn(connection.client, OURS)
        assert remembered.get(1) is None
        assert store_of(connection) != store


async def test_no_more_than_a_number_of_answers_is_remembered() -> None:
    remembered = Remembered[int, str](Connection("nats://test"), 2)
    for number in (1, 2, 3):
        remembered.put(number, str(number))
    assert [remembered.get(number) for number in (1, 2, 3)] == [None, "2", "3"]
