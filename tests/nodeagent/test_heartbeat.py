"""After component-helpers apimachinery/lease/controller_test.go: TestNewNodeLease,
TestRetryUpdateNodeLease, TestUpdateUsingLatestLease (upstream), and the loop as a whole."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from nodeagent.heartbeat import LeaseLoop
from orch.client.transport import TransportError
from orch.component.diagnostics.health import CheckFailed
from orch.component.process import loops
from orch.wire.errors import ApiError
from orch.wire.records.configuration import Lease, LeaseSpec
from orch.wire.records.core import Node
from orch.wire.records.meta import ObjectMeta
from tests.fakes.api import FakeApi

NAMESPACE = "orch-node-lease"
REFUSED = TransportError("cannot reach https://api: connection refused")


class Beat:
    """A Lease loop of node n1 against a fake server, in a jumping clock."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.node = self.api.store.put(Node(metadata=ObjectMeta(name="n1")))
        self.loop = LeaseLoop(self.api, "n1", now=self.now, rand=lambda: 0.0)
        self.skew = timedelta()
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Called in the test, whose clock jumps; fixtures live on the real one."""
        self.tasks.append(loops.spawn(self.loop.run(), name="lease"))

    def now(self) -> datetime:
        seconds = asyncio.get_running_loop().time()
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds) + self.skew

    @property
    def lease(self) -> Lease | None:
        return self.api.store.peek(Lease, "n1", NAMESPACE)

    def verbs(self) -> list[str]:
        return [call.verb for call in self.api.made(plural="leases")]

    def clear(self) -> None:
        self.api.calls.clear()


@pytest.fixture
async def beat() -> AsyncIterator[Beat]:
    beat = Beat()
    yield beat
    await loops.cancel(*beat.tasks)


pytestmark = pytest.mark.looptime


async def test_the_first_lease_names_holder_duration_and_owner(beat: Beat) -> None:
    beat.start()
    await asyncio.sleep(1)
    lease = beat.lease
    assert lease is not None and beat.node.metadata.uid
    assert lease.spec.to_wire() == {
        "holderIdentity": "n1",
        "leaseDurationSeconds": 40,
        "renewTime": "2026-01-01T00:00:00.000000Z",
    }
    assert [owner.to_wire() for owner in lease.metadata.ownerReferences or ()] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": beat.node.metadata.uid}
    ]
    assert beat.verbs() == ["get", "create"], "a fresh Lease needs no update"


async def test_until_the_node_is_registered_the_lease_waits_and_nothing_has_failed(
    beat: Beat, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nodeagent.heartbeat")
    beat.api.store.remove(Node, "n1")
    beat.start()
    await asyncio.sleep(4)
    assert (beat.lease, beat.loop.failures, caplog.text) == (None, 0, "")
    await asyncio.sleep(40)
    assert caplog.text.count("waits for the Node to be registered") == 1
    beat.node = beat.api.store.put(Node(metadata=ObjectMeta(name="n1")))
    await asyncio.sleep(8)
    assert beat.lease is not None and beat.loop.failures == 0
    assert "the Lease of node n1 is renewed again" in caplog.text


async def test_it_is_renewed_every_ten_seconds_without_reading(beat: Beat) -> None:
    beat.start()
    await asyncio.sleep(35)
    assert beat.verbs() == ["get", "create", "update", "update", "update"]
    assert beat.lease and beat.lease.spec.renewTime == "2026-01-01T00:00:30.000000Z"
    assert (beat.loop.renewals, beat.loop.failures, beat.loop.late_s) == (4, 0, 0)
    assert beat.loop.last_renew_s == pytest.approx(30)


async def test_the_pause_is_stretched_by_up_to_four_percent() -> None:
    beat = Beat()
    beat.loop = LeaseLoop(beat.api, "n1", now=beat.now, rand=lambda: 1.0)
    task = loops.spawn(beat.loop.run(), name="lease")
    began_s = asyncio.get_running_loop().time()
    await asyncio.sleep(10.5)
    await loops.cancel(task)
    assert beat.loop.last_renew_s == pytest.approx(began_s + 10.4)


async def test_an_existing_lease_is_renewed_and_its_holder_unchanged() -> None:
    beat = Beat()
    meta = ObjectMeta(name="n1", namespace=NAMESPACE)
    spec = LeaseSpec(holderIdentity="n1", leaseDurationSeconds=10)
    beat.api.store.put(Lease(metadata=meta, spec=spec))
    task = loops.spawn(beat.loop.run(), name="lease")
    await asyncio.sleep(1)
    await loops.cancel(task)
    assert beat.verbs() == ["get", "update"]
    assert beat.lease and beat.lease.metadata.ownerReferences
    assert (beat.lease.spec.holderIdentity, beat.lease.spec.leaseDurationSeconds) == ("n1", 40)


async def test_four_failures_are_retried_at_once(beat: Beat) -> None:
    beat.start()
    await asyncio.sleep(1)
    beat.clear()
    beat.api.fail(REFUSED, verb="update", times=4)
    await asyncio.sleep(10)
    assert beat.verbs() == ["update"] * 5
    assert beat.loop.last_renew_s == pytest.approx(10)


async def test_after_five_failures_it_reads_first_and_backs_off(beat: Beat) -> None:
    beat.start()
    await asyncio.sleep(1)
    beat.clear()
    beat.api.fail(REFUSED, times=10)  # five updates, five reads
    await asyncio.sleep(20)
    assert beat.verbs() == ["update"] * 5 + ["get"] * 6 + ["update"]
    pauses_s = 0.2 + 0.4 + 0.8 + 1.6 + 3.2
    assert beat.loop.last_renew_s == pytest.approx(10 + pauses_s)


async def test_pauses_never_exceed_seven_seconds(beat: Beat) -> None:
    beat.start()
    await asyncio.sleep(1)
    beat.api.fail(REFUSED, times=float("inf"))
    await asyncio.sleep(600)
    beat.clear()
    await asyncio.sleep(70)
    assert beat.verbs() == ["get"] * 10
    beat.api.heal()
    await asyncio.sleep(7.1)
    assert asyncio.get_running_loop().time() - (beat.loop.last_renew_s or 0) < 7.1


async def test_connections_are_dropped_from_the_second_failure_on(beat: Beat) -> None:
    beat.start()
    await asyncio.sleep(1)
    beat.api.fail(REFUSED, verb="update")
    await asyncio.sleep(10)
    assert beat.api.transport.resets == 0
    beat.api.fail(REFUSED, verb="update", times=3)
    await asyncio.sleep(10)
    assert beat.api.transport.resets == 2


async def test_a_conflict_reads_the_newest_and_retries(beat: Beat) -> None:
    beat.start()
    await asyncio.sleep(1)
    assert beat.lease
    beat.lease.metadata.labels = {"touched": "yes"}
    touched = beat.lease
    touched.metadata.labels = {"touched": "yes"}
    beat.api.store.put(touched)
    beat.clear()
    await asyncio.sleep(10)
    assert beat.verbs() == ["update", "get", "update"]
    assert beat.lease and beat.lease.metadata.labels == {"touched": "yes"}


async def test_an_answer_that_was_lost_does_not_stop_it(beat: Beat) -> None:
    beat.start()
    await asyncio.sleep(1)
    beat.clear()
    beat.api.fail(REFUSED, verb="update", applied=True)
    await asyncio.sleep(10)
    assert beat.verbs() == ["update", "update", "get", "update"]


async def test_a_deleted_lease_is_created_again_within_one_interval(beat: Beat) -> None:
    beat.start()
    await asyncio.sleep(1)
    beat.api.store.remove(Lease, "n1", NAMESPACE)
    beat.clear()
    await asyncio.sleep(10)
    assert beat.verbs() == ["update", "get", "create"]
    assert beat.lease and beat.lease.metadata.ownerReferences


async def test_without_its_node_a_lease_is_not_created_but_is_renewed(beat: Beat) -> None:
    beat.start()
    beat.api.store.remove(Node, "n1")
    await asyncio.sleep(30)
    assert beat.lease is None
    beat.api.store.put(Lease(metadata=ObjectMeta(name="n1", namespace=NAMESPACE)))
    await asyncio.sleep(10)
    assert beat.lease and beat.lease.spec.renewTime and not beat.lease.metadata.ownerReferences
    beat.api.store.put(Node(metadata=ObjectMeta(name="n1")))
    await asyncio.sleep(10)
    assert beat.lease.metadata.ownerReferences


async def test_the_lease_comes_soon_after_the_node_is_registered(beat: Beat) -> None:
    beat.start()
    beat.api.store.remove(Node, "n1")
    await asyncio.sleep(0.3)
    beat.api.store.put(Node(metadata=ObjectMeta(name="n1")))
    await asyncio.sleep(0.5)
    assert beat.lease


async def test_a_renewal_that_does_not_come_is_overdue(beat: Beat) -> None:
    beat.start()
    await asyncio.sleep(1)
    renewed_s = beat.loop.last_renewal_unix_s
    assert (beat.loop.overdue_s(), renewed_s) == (0, beat.now().timestamp() - 1)
    beat.api.fail(REFUSED, times=float("inf"))
    await asyncio.sleep(69)  # the next was due after ten
    assert (beat.loop.late_s, beat.loop.overdue_s()) == (0, pytest.approx(60))
    assert beat.loop.last_renewal_unix_s == renewed_s
    beat.api.heal()
    await asyncio.sleep(8)
    assert beat.loop.overdue_s() == 0 and beat.loop.late_s > 60


async def test_a_call_that_hangs_is_given_up_after_its_deadline(beat: Beat) -> None:
    beat.start()
    await asyncio.sleep(1)
    beat.api.hang(verb="update")
    await asyncio.sleep(24)  # hangs from 10 to 20, and again in the second try
    beat.api.heal()
    await asyncio.sleep(0.1)
    assert beat.loop.failures == 1
    assert beat.loop.last_renew_s == pytest.approx(25)
    assert beat.loop.late_s == pytest.approx(15)


@pytest.mark.parametrize("code", [409, 429, 500, 503])
async def test_every_refusal_is_outlived(beat: Beat, code: int) -> None:
    beat.start()
    await asyncio.sleep(1)
    beat.api.fail(ApiError(code, "Whatever", "no"), times=float("inf"))
    await asyncio.sleep(300)
    beat.api.heal()
    await asyncio.sleep(7.1)
    assert asyncio.get_running_loop().time() - (beat.loop.last_renew_s or 0) < 7.1


async def test_the_wall_clock_may_jump(beat: Beat) -> None:
    beat.start()
    await asyncio.sleep(1)
    for hours in (1, -1):
        beat.skew = timedelta(hours=hours)
        await asyncio.sleep(10)
    assert beat.loop.renewals == 3 and beat.loop.late_s == 0


async def test_its_own_defects_are_counted_and_outlived(
    beat: Beat, caplog: pytest.LogCaptureFixture
) -> None:
    beat.start()
    await asyncio.sleep(1)
    beat.api.fail(ZeroDivisionError("bug"), verb="update")
    await asyncio.sleep(10)
    assert beat.loop.failures == 1 and "failed unexpectedly" in caplog.text
    reads = len(beat.api.made("get", "leases"))
    await asyncio.sleep(10)
    assert beat.loop.renewals == 2
    assert len(beat.api.made("get", "leases")) == reads + 1, "it trusts nothing it had"


async def test_a_loss_and_its_end_are_one_sentence_each(
    beat: Beat, caplog: pytest.LogCaptureFixture
) -> None:
    beat.start()
    caplog.set_level(logging.INFO)
    await asyncio.sleep(1)
    beat.api.fail(REFUSED, times=float("inf"))
    await asyncio.sleep(120)
    beat.api.heal()
    await asyncio.sleep(30)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0] == f"cannot renew the Lease of node n1, retrying: {REFUSED}"
    assert said[1].startswith("the Lease of node n1 is renewed again (after 11")


async def test_an_outage_with_another_cause_logs_that_too(
    beat: Beat, caplog: pytest.LogCaptureFixture
) -> None:
    beat.start()
    await asyncio.sleep(1)
    forbidden = ApiError(403, "Forbidden", "leases are not yours")
    for failure in (REFUSED, forbidden, REFUSED):
        beat.api.heal()
        beat.api.fail(failure, times=float("inf"))
        await asyncio.sleep(60)
    beat.api.heal()
    await asyncio.sleep(30)
    beat.api.fail(REFUSED, times=float("inf"))
    await asyncio.sleep(60)

    said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    lost = "cannot renew the Lease of node n1, retrying: "
    assert said == [f"{lost}{cause}" for cause in (REFUSED, forbidden, REFUSED)]


async def test_it_counts_as_alive_through_an_outage_and_not_when_it_has_ended(beat: Beat) -> None:
    beat.loop.alive()  # before it begins
    beat.api.fail(REFUSED, plural="leases", times=float("inf"))
    beat.start()
    for _ in range(60):
        await asyncio.sleep(10)
        beat.loop.alive()
    await loops.cancel(*beat.tasks)
    await asyncio.sleep(60)
    with pytest.raises(CheckFailed, match="has been stuck for"):
        beat.loop.alive()
