"""Cases after client-go tools/leaderelection/leaderelection_test.go (upstream)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from orch.client.transport import TransportError
from orch.component.process import loops
from orch.lifecycle.leader import Claim, Leader
from orch.wire.errors import ApiError
from orch.wire.records.configuration import Lease
from tests.fakes.api import FakeApi
from tests.fakes.apistore import FakeStore

pytestmark = pytest.mark.looptime

REFUSED = TransportError("unreachable")


class Candidate:
    def __init__(self, store: FakeStore, identity: str, skew: timedelta) -> None:
        self.api = FakeApi(store)
        claim = Claim("controller", "orch-system", identity)
        self.leader = Leader(self.api, claim, now=lambda: _now() + skew)
        self.terms = 0
        self.deciding = False
        self.task = loops.spawn(self.leader.run(self.decide), name=identity)

    async def decide(self) -> None:
        self.terms += 1
        self.deciding = True
        try:
            await asyncio.Event().wait()
        finally:
            self.deciding = False


def _now() -> datetime:
    seconds = asyncio.get_running_loop().time()
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


class Election:
    def __init__(self) -> None:
        self.store = FakeStore()
        self.candidates: list[Candidate] = []

    def stand(self, identity: str, *, skew: timedelta = timedelta()) -> Candidate:
        candidate = Candidate(self.store, identity, skew)
        self.candidates.append(candidate)
        return candidate

    @property
    def lease(self) -> Lease:
        lease: Lease = self.store.peek(Lease, "controller", "orch-system")
        return lease


@pytest.fixture
async def election() -> AsyncIterator[Election]:
    election = Election()
    yield election
    await loops.cancel(*(candidate.task for candidate in election.candidates))


async def test_the_first_leads_and_renews(election: Election) -> None:
    first = election.stand("a")
    await asyncio.sleep(1)
    assert first.deciding and first.leader.leading
    began = election.lease.spec
    assert (began.holderIdentity, began.leaseDurationSeconds, began.leaseTransitions) == (
        "a",
        15,
        0,
    )
    await asyncio.sleep(60)
    assert election.lease.spec.renewTime != began.renewTime
    assert election.lease.spec.acquireTime == began.acquireTime
    assert first.terms == 1


async def test_the_second_stands_by(election: Election) -> None:
    election.stand("a")
    await asyncio.sleep(1)
    second = election.stand("b")
    await asyncio.sleep(300)
    assert not second.deciding and not second.leader.leading


async def test_an_ordered_stop_hands_over_at_once(election: Election) -> None:
    first = election.stand("a")
    await asyncio.sleep(1)
    second = election.stand("b")
    await asyncio.sleep(10)
    await loops.cancel(first.task)
    assert not first.deciding
    await asyncio.sleep(3)
    assert second.deciding and election.lease.spec.leaseTransitions == 1


async def test_a_dead_leader_is_followed_after_its_claim_ran_out(election: Election) -> None:
    first = election.stand("a")
    await asyncio.sleep(1)
    second = election.stand("b")
    await asyncio.sleep(10)
    first.api.fail(REFUSED, times=float("inf"))
    await asyncio.sleep(12.5)
    assert not first.deciding, "it stops before the other begins"
    assert not second.deciding
    await asyncio.sleep(6)
    assert second.deciding


async def test_never_do_two_decide_at_once(election: Election) -> None:
    first, second = election.stand("a"), election.stand("b")
    for failing in (first, second, first, second):
        failing.api.fail(REFUSED, times=float("inf"))
        for _ in range(300):
            await asyncio.sleep(0.1)
            assert not (first.deciding and second.deciding)
        failing.api.heal()
    assert first.terms >= 1 and second.terms >= 1


async def test_a_short_outage_loses_nothing(election: Election) -> None:
    first = election.stand("a")
    await asyncio.sleep(1)
    first.api.fail(REFUSED, verb="update", times=3)
    await asyncio.sleep(30)
    assert first.deciding and first.terms == 1


async def test_a_lost_leader_stands_by_and_leads_again(election: Election) -> None:
    first = election.stand("a")
    await asyncio.sleep(1)
    first.api.fail(REFUSED, times=float("inf"))
    await asyncio.sleep(60)
    assert not first.deciding
    first.api.heal()
    await asyncio.sleep(4)
    assert first.deciding and first.terms == 2


async def test_clocks_that_are_wrong_do_not_matter(election: Election) -> None:
    first = election.stand("a", skew=timedelta(days=-9000))
    await asyncio.sleep(1)
    second = election.stand("b", skew=timedelta(days=9000))
    await asyncio.sleep(60)
    assert first.deciding and not second.deciding


async def test_a_lease_that_others_touch_is_renewed_all_the_same(election: Election) -> None:
    first = election.stand("a")
    await asyncio.sleep(1)
    for _ in range(30):
        touched = election.lease
        touched.metadata.labels = {"seen": str(asyncio.get_running_loop().time())}
        election.store.put(touched)
        await asyncio.sleep(2)
    assert first.terms == 1 and election.lease.metadata.labels


async def test_a_lease_that_was_deleted_is_made_again(election: Election) -> None:
    first = election.stand("a")
    await asyncio.sleep(1)
    election.store.remove(Lease, "controller", "orch-system")
    await asyncio.sleep(4)
    assert first.terms == 1 and election.lease.spec.holderIdentity == "a"


async def test_a_call_that_hangs_costs_the_leadership_in_time(election: Election) -> None:
    first = election.stand("a")
    await asyncio.sleep(1)
    first.api.hang()
    await asyncio.sleep(12.5)
    assert not first.deciding


async def test_an_error_of_the_work_ends_the_leader(election: Election) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    leader = Leader(FakeApi(), Claim("c", "n", "a"), now=_now)
    with pytest.raises(ZeroDivisionError):
        await leader.run(fail)


async def test_an_operator_reads_once_why_nobody_leads_and_that_it_is_over(
    election: Election, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    first = election.stand("a")
    first.api.fail(ApiError(403, "Forbidden", "leases is forbidden"), times=float("inf"))
    await asyncio.sleep(60)
    assert caplog.messages == ["cannot claim leadership, retrying: leases is forbidden"]
    first.api.heal()
    await asyncio.sleep(4)
    again, leading = caplog.messages[1:]
    assert again.startswith("the claim of leadership is read and written again (after 6")
    assert leading == "leading as a"


async def test_leadership_that_is_lost_is_said_with_its_cause(
    election: Election, caplog: pytest.LogCaptureFixture
) -> None:
    first = election.stand("a")
    await asyncio.sleep(1)
    first.api.fail(REFUSED, times=float("inf"))
    await asyncio.sleep(60)
    assert caplog.messages == [
        "cannot claim leadership, retrying: unreachable",
        "leadership is lost: the claim was not renewed within 10 s (unreachable); standing by",
    ]
