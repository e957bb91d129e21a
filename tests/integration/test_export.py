"""The export on real servers: order, at least once whatever happens, failures of the endpoint, and other ledgers."""

import asyncio
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from gpuledger.db.locks import LockCheck
from gpuledger.edge.export.bounds import ExportBounds
from gpuledger.edge.export.cursor import CursorStore
from gpuledger.edge.export.sender import Sender
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.export_settings import Selection
from support.events import outgoing
from support.exporting import (
    QUICK,
    accepts,
    cursor_position,
    dead_letters,
    exporter_of,
    exporting,
    ids_of,
    is_caught_up,
    is_in_state,
    reports,
)
from support.ledgers import jetstream_ledger, new_ledger
from support.log_copies import keep_copy, put_back
from support.projections import execute, publish, stop
from support.receiver import Receiver, Reply, receiving
from support.runners import failures
from support.waiting import eventually


class Killed(BaseException):
    """What ends an export as a kill does: nothing is put right on the way out."""


def kill_once(patched: pytest.MonkeyPatch, owner: type, name: str, when: str, at: int) -> None:
    """End the export at a call of a step, before or behind it."""
    really, calls = getattr(owner, name), 0

    async def killed(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != at:
            return await really(*arguments, **named)
        if when == "behind":
            await really(*arguments, **named)
        raise Killed

    patched.setattr(owner, name, killed)


def ledgerpositions(receiver: Receiver) -> list[str]:
    return [one["ledgerposition"] for one in receiver.accepted]


async def test_events_come_in_the_order_of_the_log_with_their_places(ledger: JetStreamLedger, url: str) -> None:
    events = reports(range(1, 21))
    await publish(ledger, events)
    async with receiving() as receiver, exporting(exporter := exporter_of(ledger, url, receiver)):
        await accepts(receiver, 20)
        await is_caught_up(exporter)
        later = reports(range(21, 31))
        await publish(ledger, later)
        await accepts(receiver, 30)
        await is_caught_up(exporter)
        assert exporter.health() == ("exporting", "1/30", 0, None)
    assert receiver.ids == ids_of([*events, *later])
    assert ledgerpositions(receiver) == [f"1/{number}" for number in range(1, 31)]
    assert {one["ledgerid"] for one in receiver.accepted} == {ledger.identity.ledger_id}
    assert {one.content_type for one in receiver.requests} == {"application/cloudevents+json"}
    assert cursor_position(url) == 30


async def test_many_events_go_in_one_request_where_the_settings_say_so(ledger: JetStreamLedger, url: str) -> None:
    events = reports(range(1, 26))
    await publish(ledger, events)
    async with receiving() as receiver, exporting(exporter_of(ledger, url, receiver, batch_events=10)):
        await accepts(receiver, 25)
    assert receiver.ids == ids_of(events)
    assert {one.content_type for one in receiver.requests} == {"application/cloudevents-batch+json"}
    assert max(len(one.events) for one in receiver.requests) <= 10
    assert len(receiver.requests) < 25


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("step", ["send", "move", "begin"])
async def test_a_kill_at_any_step_loses_nothing(
    ledger: JetStreamLedger, url: str, step: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = reports(range(1, 8))
    await publish(ledger, events)
    owner = Sender if step == "send" else CursorStore
    async with receiving() as receiver:
        with monkeypatch.context() as patched:
            kill_once(patched, owner, step, when, at=1 if step == "begin" else 3)
            with pytest.raises(Killed):
                await exporter_of(ledger, url, receiver).run()
        async with exporting(exporter := exporter_of(ledger, url, receiver)):
            await is_caught_up(exporter)
        assert list(dict.fromkeys(receiver.ids)) == ids_of(events)
        assert len(receiver.ids) <= len(events) + 1
        assert cursor_position(url) == 7


async def test_a_cancel_while_the_endpoint_answers_sends_the_event_again(ledger: JetStreamLedger, url: str) -> None:
    events = reports(range(1, 4))
    await publish(ledger, events)
    async with receiving() as receiver:
        async with exporting(exporter_of(ledger, url, receiver)) as task:

            async def cancel() -> None:
                receiver.before = None
                task.cancel()

            receiver.before = cancel
            await eventually(lambda: _is_done(task))
        async with exporting(exporter := exporter_of(ledger, url, receiver)):
            await is_caught_up(exporter)
        assert list(dict.fromkeys(receiver.ids)) == ids_of(events)
        assert receiver.ids[0] == receiver.ids[1]


async def _is_done(task: Any) -> bool:
    return bool(task.done())


async def test_only_what_is_selected_is_sent_and_the_cursor_passes_over_the_rest(
    ledger: JetStreamLedger, url: str
) -> None:
    fatal, others = reports(range(1, 4)), reports(range(4, 6), fatal=False)
    await publish(ledger, [*fatal, *others, *failures(range(11, 14))])
    select = (Selection("node.health-reported", {"fatal": (True,)}),)
    async with receiving() as receiver, exporting(exporter := exporter_of(ledger, url, receiver, select=select)):
        await is_caught_up(exporter)
    assert receiver.ids == ids_of(fatal)
    assert cursor_position(url) == 8


async def test_an_event_under_a_subject_that_is_not_its_own_is_passed_over(ledger: JetStreamLedger, url: str) -> None:
    (forged,), honest = reports([1]), reports([2])
    message = outgoing(forged)
    await ledger.publish(Outgoing(message.subject.replace(".n1.", ".n2."), message.id, message.data))
    await publish(ledger, honest)
    async with receiving() as receiver, exporting(exporter := exporter_of(ledger, url, receiver)):
        await is_caught_up(exporter)
    assert receiver.ids == ids_of(honest)


async def test_the_first_start_begins_at_the_head_or_where_it_should(ledger: JetStreamLedger, url: str) -> None:
    events = reports(range(1, 6))
    await publish(ledger, events)
    async with receiving() as receiver:
        async with exporting(exporter := exporter_of(ledger, url, receiver, begin="head")):
            await is_caught_up(exporter)
            assert receiver.ids == []
            await publish(ledger, later := reports([6]))
            await accepts(receiver, 1)
        execute(url, "DELETE FROM gpuledger.export_cursor")
        async with exporting(exporter := exporter_of(ledger, url, receiver, begin="1/4")):
            await is_caught_up(exporter)
        assert receiver.ids == ids_of([*later, *events[3:], *later])


async def test_a_time_to_begin_at_counts_as_recorded(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, reports(range(1, 4)))
    async with receiving() as receiver:
        async with exporting(exporter := exporter_of(ledger, url, receiver, begin="2020-01-01T00:00:00Z")):
            await is_caught_up(exporter)
        recorded = receiver.accepted[1]["recordedtime"]
        execute(url, "DELETE FROM gpuledger.export_cursor")
        receiver.accepted.clear()
        async with exporting(exporter := exporter_of(ledger, url, receiver, begin=recorded)):
            await is_caught_up(exporter)
        assert receiver.accepted[-1]["id"] == reports([3])[0].id
        assert min(one["recordedtime"] for one in receiver.accepted) >= recorded


async def test_a_beginning_behind_the_log_stops(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, reports([1]))
    async with receiving() as receiver, exporting(exporter := exporter_of(ledger, url, receiver, begin="1/50")):
        await is_in_state(exporter, "stopped")
        assert exporter.health().reason == "The export is to begin at 1/50, and the log ends at 1/1. Correct begin."


@pytest.mark.parametrize("status", [500, 503, 429, 408, 401, 404, 307])
async def test_what_is_not_about_the_event_is_tried_again(ledger: JetStreamLedger, url: str, status: int) -> None:
    events = reports(range(1, 3))
    await publish(ledger, events)
    async with receiving() as receiver:
        headers = {"Retry-After": "3600"} | ({"Location": "http://127.0.0.1:1/"} if status == 307 else {})
        receiver.replies.extend([Reply(status, headers)] * 3)
        async with exporting(exporter := exporter_of(ledger, url, receiver, on_refusal="stop")):
            await is_caught_up(exporter)
        assert receiver.ids == ids_of(events)
        assert len(receiver.requests) == 5
    assert dead_letters(url) == []


async def test_an_endpoint_that_is_away_or_silent_shows_and_is_outlasted(ledger: JetStreamLedger, url: str) -> None:
    events = reports(range(1, 3))
    await publish(ledger, events)
    async with receiving() as first:
        port = int(first.url.rsplit(":", 1)[1].partition("/")[0])
    async with exporting(exporter := exporter_of(ledger, url, first)):
        await is_in_state(exporter, "retrying")

        async def lags() -> bool:
            return exporter.health().lag_events == 2

        await eventually(lags)
        assert "did not answer" in (exporter.health().reason or "")
        async with receiving(port=port) as receiver:
            await is_caught_up(exporter)
            assert receiver.ids == ids_of(events)


async def test_a_time_out_is_a_failure_and_the_event_comes_again(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, events := reports([1]))
    async with receiving() as receiver:
        answer = asyncio.Event()

        async def hold() -> None:
            receiver.before = None
            await answer.wait()

        receiver.before = hold
        async with exporting(exporter := exporter_of(ledger, url, receiver, replace(QUICK, request_timeout_s=0.2))):
            await is_caught_up(exporter)
        answer.set()
    assert receiver.ids == ids_of(events) * 2


async def test_an_event_that_is_refused_for_good_becomes_a_dead_letter(ledger: JetStreamLedger, url: str) -> None:
    events = reports(range(1, 6))
    await publish(ledger, events)
    async with receiving() as receiver:
        receiver.decide = lambda one: (
            Reply(422, text="no such\0check") if any(e["id"] == events[2].id for e in one.events) else Reply()
        )
        async with exporting(exporter := exporter_of(ledger, url, receiver, batch_events=5)):
            await is_caught_up(exporter)
        assert receiver.ids == ids_of([*events[:2], *events[3:]])
        ((event_id, kind, reason),) = dead_letters(url)
        assert (event_id, kind) == (events[2].id, events[2].type)
        assert reason.endswith("answered 422 (no suchcheck).")


async def test_the_list_of_dead_letters_is_bounded_and_then_the_export_stops(ledger: JetStreamLedger, url: str) -> None:
    events = reports(range(1, 5))
    await publish(ledger, events)
    async with receiving() as receiver:
        receiver.decide = lambda _: Reply(400)
        async with exporting(exporter := exporter_of(ledger, url, receiver, replace(QUICK, dead_letters_max=2))):
            await is_in_state(exporter, "stopped")
            assert "2 dead letters are recorded" in (exporter.health().reason or "")
            assert exporter.health().lag_events is None
            assert cursor_position(url) == 2
            receiver.decide = lambda _: Reply()
            await is_caught_up(exporter)
        assert receiver.ids == ids_of(events[2:])


async def test_a_refusal_stops_the_export_where_the_settings_say_so(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, events := reports(range(1, 3)))
    async with receiving() as receiver:
        receiver.replies.extend([Reply(), *[Reply(400, text="too old")] * 2])
        async with exporting(exporter := exporter_of(ledger, url, receiver, on_refusal="stop")):
            await is_in_state(exporter, "stopped")
            assert "at 1/2: " in (exporter.health().reason or "")
            await is_caught_up(exporter)
        assert receiver.ids == ids_of(events)
    assert dead_letters(url) == []


async def test_one_exports_and_another_takes_over(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, events := reports(range(1, 4)))
    async with receiving() as receiver, exporting(first := exporter_of(ledger, url, receiver)) as task:
        await is_caught_up(first)
        async with exporting(second := exporter_of(ledger, url, receiver)):
            await stop(task)
            await publish(ledger, later := reports(range(4, 6)))
            await is_caught_up(second)
        assert receiver.ids == ids_of([*events, *later])


async def test_who_loses_the_lock_while_the_endpoint_is_away_begins_again(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, events := reports(range(1, 4)))
    bounds = replace(QUICK, lock_check=LockCheck(interval_s=0.01))
    async with receiving() as receiver:
        receiver.decide = lambda _: Reply(503)
        async with exporting(exporter := exporter_of(ledger, url, receiver, bounds)):
            await is_in_state(exporter, "retrying")
            (before,) = leaders(url)
            execute(url, "SELECT pg_terminate_backend(%s)", before)

            async def leads_again() -> bool:
                return bool(leaders(url) - {before})

            await eventually(leads_again)
            receiver.decide = lambda _: Reply()
            await is_caught_up(exporter)
        assert receiver.ids == ids_of(events)


def leaders(url: str) -> set[int]:
    """The sessions that hold the lock of the export."""
    holders = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE "
    return {pid for (pid,) in execute(url, holders + "'gpuledger export %%/%%'")}


def gauge(name: str) -> float:
    found = REGISTRY.get_sample_value(f"gpuledger_export_{name}")
    assert found is not None
    return found


async def test_the_age_of_what_waits_is_measured_and_nothing_is_shown_that_is_not(
    ledger: JetStreamLedger, url: str
) -> None:
    await publish(ledger, reports([1]))
    async with receiving() as receiver:
        receiver.decide = lambda _: Reply(503)
        async with exporting(exporter := exporter_of(ledger, url, receiver)):

            async def shows() -> bool:
                return gauge("lag_events") == 1 and gauge("waiting_seconds") > 0

            await eventually(shows)
            receiver.decide = lambda _: Reply()
            await is_caught_up(exporter)
            assert (gauge("lag_events"), gauge("waiting_seconds"), gauge("active")) == (0, 0, 1)
    assert isnan(gauge("lag_events"))
    assert isnan(gauge("waiting_seconds"))
    assert gauge("active") == 0


async def test_a_cursor_of_another_ledger_stops_with_a_sentence(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, events := reports(range(1, 4)))
    async with receiving() as receiver, exporting(exporter := exporter_of(ledger, url, receiver)) as task:
        await is_caught_up(exporter)
        await stop(task)
        execute(url, "UPDATE gpuledger.export_cursor SET ledger_id = 'another'")
        async with exporting(exporter := exporter_of(ledger, url, receiver)):
            await is_in_state(exporter, "stopped")
            found = exporter.health()
            assert "The log was replaced: the cursor of the export follows the ledger another" in (found.reason or "")
            assert found.lag_events is None
            execute(url, "UPDATE gpuledger.export_cursor SET ledger_id = %s", ledger.identity.ledger_id)
            await is_caught_up(exporter)
        assert receiver.ids == ids_of(events)


async def test_an_older_copy_of_the_log_stops_the_export(fresh_nats: NatsServer, url: str, tmp_path: Path) -> None:
    async with receiving() as receiver:
        async with new_ledger(fresh_nats.url) as ledger:
            await publish(ledger, reports(range(1, 4)))
            keep_copy(fresh_nats, tmp_path / "copy")
            await publish(ledger, reports(range(4, 8)))
            async with exporting(exporter := exporter_of(ledger, url, receiver)):
                await is_caught_up(exporter)
        put_back(fresh_nats, tmp_path / "copy")
        async with (
            jetstream_ledger(fresh_nats.url) as ledger,
            exporting(exporter := exporter_of(ledger, url, receiver)),
        ):
            await is_in_state(exporter, "stopped")
            assert "The log was restored from an older copy" in (exporter.health().reason or "")
            assert exporter.health().lag_events is None
        assert len(receiver.ids) == 7


def test_pauses_end_and_retry_after_counts_up_to_its_bound() -> None:
    bounds = ExportBounds()
    assert bounds.retries.pause_s(100) == bounds.retries.max_s
    assert bounds.retries.pause_s(1, retry_after_s=1e9) <= 1.5 * Backoff().retry_after_max_s
