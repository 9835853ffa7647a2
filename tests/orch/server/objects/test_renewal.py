from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.server.objects.document import decode, encode
from orch.server.objects.renewal import renewed
from orch.server.storage.base import Stored
from tests.orch.server.harness import LEASES, Api, lease

OLD, NEW = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:10.123456Z"


def stored_lease(**metadata: Any) -> Stored:
    document = lease("n1", renewTime=OLD)
    document["metadata"] |= {"namespace": "orch-node-lease", "uid": "u", **metadata}
    return Stored("/leases/a/n1", 7, encode(document))


def sent(**changes: Any) -> bytes:
    document = decode(stored_lease())
    document["spec"] |= {"renewTime": NEW, **changes}
    return orjson.dumps(document)


DAYS = ("01-29", "01-31", "02-28", "04-30", "12-31")


@pytest.mark.parametrize("time", [NEW, *(f"2026-{day}T23:59:59.999999Z" for day in DAYS)])
def test_a_lease_with_another_time_is_a_renewal(time: str) -> None:
    found = renewed(stored_lease(), sent(renewTime=time))
    assert found is not None
    new, old = found
    assert (new["spec"]["renewTime"], old["spec"]["renewTime"]) == (time, OLD)
    assert encode(new) == stored_lease().data.replace(OLD.encode(), time.encode())


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b"null", b'{"spec": 1}', b'{"spec": {}}', b"\xff",
        sent(renewTime=OLD), sent(renewTime=None), sent(renewTime=7), sent(renewTime="soon"),
        sent(renewTime="2026-02-30T00:00:00.000000Z"),
        sent(renewTime="2026-04-31T00:00:00.000000Z"),
        sent(renewTime="2026-13-01T00:00:00.000000Z"),
        sent(renewTime="2026-01-01T24:00:00.000000Z"),
        sent(renewTime=NEW + "\n"), sent(renewTime="٢٠٢٦-01-01T00:00:10.123456Z"),
        sent(holderIdentity="other"), sent(leaseDurationSeconds=40.0), sent(unknown=1),
        sent(leaseTransitions=None),
        sent().replace(b'"resourceVersion":"7"', b'"resourceVersion":"6"'),
        sent().replace(b'"uid":"u"', b'"uid":"v"'),
        sent().replace(b'"uid":"u"', b'"uid":"u","labels":{}'),
        sent().replace(b'"kind":"Lease"', b'"kind":"Node"'),
    ],
)  # fmt: skip
def test_anything_else_takes_the_ordinary_way(body: bytes) -> None:
    assert renewed(stored_lease(), body) is None


def test_a_lease_that_is_going_takes_the_ordinary_way() -> None:
    going = stored_lease(deletionTimestamp=OLD)
    document = decode(going)
    document["spec"]["renewTime"] = NEW
    assert renewed(going, orjson.dumps(document)) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from(["spec", "renewTime", "a"]), inner),
    max_leaves=8,
)


@given(JSON)
def test_no_json_is_a_surprise(data: Any) -> None:
    assert renewed(stored_lease(), orjson.dumps(data)) is None


async def test_both_ways_store_and_answer_the_same(api: Api) -> None:
    """The ordinary way is taken when a query parameter is there."""
    answers = []
    for name, query in (("n1", ""), ("n2", "?fieldManager=x")):
        assert (await api.call("POST", LEASES, lease(name, renewTime=OLD))).status == 201
        current = (await api.call("GET", f"{LEASES}/{name}")).json
        current["spec"]["renewTime"] = NEW
        answer = await api.call("PUT", f"{LEASES}/{name}{query}", current)
        assert answer.status == 200
        assert answer.body == (await api.call("GET", f"{LEASES}/{name}")).body
        answers.append((answer.json, dict(answer.headers)))
        late = await api.call("PUT", f"{LEASES}/{name}{query}", current)
        assert (late.status, late.json["reason"]) == (409, "Conflict")
    (one, one_headers), (other, other_headers) = answers
    for shown in (one, other):
        for field in ("name", "uid", "resourceVersion", "creationTimestamp"):
            shown["metadata"].pop(field)
        shown["spec"].pop("holderIdentity")
    assert one == other
    assert one_headers.keys() == other_headers.keys()


async def test_a_node_renews_its_own_lease_only(api: Api) -> None:
    assert (await api.call("POST", LEASES, lease("n1", renewTime=OLD), user="n1")).status == 201
    current = (await api.call("GET", f"{LEASES}/n1")).json
    current["spec"]["renewTime"] = NEW
    assert (await api.call("PUT", f"{LEASES}/n1", current, user="n2")).status == 403
    assert (await api.call("PUT", f"{LEASES}/n1", current, user="n1")).status == 200
