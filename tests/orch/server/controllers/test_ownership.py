from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.server.controllers.ownership import (
    FOREGROUND,
    ORPHAN,
    GarbagePlan,
    Owned,
    OwnerState,
    Ref,
    plan,
)

THERE, WAITING, ORPHANING, GONE = OwnerState


def ref(uid: str, *, blocks: bool = False) -> Ref:
    return Ref("v1", "Node", uid, uid, blocks)


def planned(states: dict[str, OwnerState], *owned: Owned) -> GarbagePlan:
    finalizers = {WAITING: FOREGROUND, ORPHANING: ORPHAN}
    going = {
        uid: (f"/{uid}", finalizers[state]) for uid, state in states.items() if state in finalizers
    }
    owners = {reference.uid for each in owned for reference in each.refs}
    return plan(owned, owners, going, lambda _one, reference: states.get(reference.uid, GONE))


def one(*owners: str, key: str = "x", blocks: bool = False) -> Owned:
    return Owned(key, f"uid-{key}", tuple(ref(uid, blocks=blocks) for uid in owners))


# The reference system's pkg/controller/garbagecollector, attemptToDeleteItem.
@pytest.mark.parametrize(
    ("states", "owners", "deleted", "let_go"),
    [
        ({}, ("a",), True, set()),
        ({}, ("a", "b"), True, set()),
        ({"a": THERE}, ("a",), False, set()),
        ({"a": THERE}, ("a", "gone"), False, {"gone"}),
        ({"a": THERE, "b": WAITING}, ("a", "b"), False, {"b"}),
        ({"a": WAITING}, ("a",), True, set()),
        ({"a": WAITING}, ("a", "gone"), True, set()),
        ({"a": ORPHANING}, ("a",), False, {"a"}),
        ({"a": ORPHANING}, ("a", "gone"), False, {"a"}),
        ({"a": ORPHANING, "b": THERE}, ("a", "b", "gone"), False, {"a", "gone"}),
    ],
)
def test_an_object_lives_as_long_as_an_owner_of_it(
    states: dict[str, OwnerState], owners: tuple[str, ...], deleted: bool, let_go: set[str]
) -> None:
    result = planned(states, one(*owners))
    assert list(result.delete) == (["x"] if deleted else [])
    assert result.let_go == ({"x": frozenset(let_go)} if let_go else {})


@pytest.mark.parametrize(
    ("state", "blocks", "released"),
    [
        (WAITING, True, {}),
        (WAITING, False, {"/a": FOREGROUND}),
        (ORPHANING, False, {}),
    ],
)
def test_an_owner_waits_for_what_blocks_it(
    state: OwnerState, blocks: bool, released: dict[str, str]
) -> None:
    assert planned({"a": state}, one("a", blocks=blocks)).release == released
    assert planned({"a": state}).release == {"/a": FOREGROUND if state is WAITING else ORPHAN}


def test_the_foreground_goes_on_to_what_owns_others_itself() -> None:
    middle = one("a", key="m", blocks=True)
    leaf = Owned("l", "uid-l", (ref("uid-m", blocks=True),))
    result = planned({"a": WAITING, "uid-m": THERE}, middle, leaf)
    assert result.delete == {"m": True}
    assert planned({"a": WAITING}, middle).delete == {"m": False}


@pytest.mark.parametrize(
    ("waiting", "held_by_others", "released"),
    [
        (("ab", "ba"), (), "ab"),  # a owns b, and b owns a
        (("aa",), (), "a"),
        (("ab", "bc", "cad"), (), "abcd"),  # nor does an owner of it
        (("ab", "ba"), ("a",), ""),
        (("ab", "ba", "la"), (), "l"),  # first what the circle does not hold
        (("ab", "bc"), (), "a"),  # no circle: from its end on
    ],
)
def test_a_circle_of_owners_does_not_wait_for_itself(
    waiting: tuple[str, ...], held_by_others: tuple[str, ...], released: str
) -> None:
    """`waiting`: a dependent and its owners. They waited for ever, and so did their namespace."""
    owned = [
        Owned(own, own, tuple(ref(owner, blocks=True) for owner in owners))
        for own, *owners in waiting
    ]
    owned += [one(owner, blocks=True) for owner in held_by_others]
    states = dict.fromkeys("".join(waiting), WAITING)
    result = planned(states, *owned)
    assert sorted(result.release) == [f"/{uid}" for uid in released]


@given(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(OwnerState)),
    st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True), max_size=5),
)
def test_nothing_with_a_living_owner_is_deleted_and_nothing_both_ways(
    states: dict[str, OwnerState], owners: list[list[str]]
) -> None:
    owned = [one(*uids, key=str(n), blocks=True) for n, uids in enumerate(owners)]
    result = planned(states, *owned)
    assert not result.delete.keys() & result.let_go.keys()
    for number, uids in enumerate(owners):
        alive = any(states.get(uid) in (THERE, ORPHANING) for uid in uids)
        assert (str(number) in result.delete) is not alive


def test_values_are_plain() -> None:
    values: Any = planned({})
    assert (values.delete, values.let_go, values.release) == ({}, {}, {})
