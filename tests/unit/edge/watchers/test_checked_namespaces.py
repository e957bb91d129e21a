"""Who waits for other namespaces to get checks hears of each change."""

import asyncio

from gpuledger.edge.watchers.checked_namespaces import CheckedNamespaces

A, B = frozenset({"a"}), frozenset({"b"})


async def test_all_that_wait_return_once_others_get_checks() -> None:
    checked = CheckedNamespaces()
    waiting = [asyncio.create_task(checked.differ(frozenset())) for _ in range(2)]
    await asyncio.sleep(0)
    checked.set(frozenset())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    checked.set(A)
    await asyncio.gather(*waiting)
    await checked.differ(B)
    assert checked.names == A


def test_it_serves_one_loop_after_the_other() -> None:
    checked = CheckedNamespaces()

    async def change(before: frozenset[str], after: frozenset[str]) -> None:
        waiting = asyncio.create_task(checked.differ(before))
        await asyncio.sleep(0)
        checked.set(after)
        await waiting

    asyncio.run(change(frozenset(), A))
    asyncio.run(change(A, B))
