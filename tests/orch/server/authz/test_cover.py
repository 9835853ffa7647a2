"""Covering: K:component-helpers/auth/rbac/validation/policy_comparator_test.go, and its law."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orch.server.authz import cover
from orch.server.authz.rules import MAX_TEXTS, Rule
from tests import scaling
from tests.examples import examples
from tests.orch.server.authz import worlds

PODS = Rule(("get", "list"), ("",), ("pods",))


@pytest.mark.parametrize(
    ("held", "wanted", "lacking"),
    [
        ([PODS], [PODS], []),
        ([PODS], [Rule(("get",), ("",), ("pods",), ("a",))], []),
        ([Rule(("*",), ("*",), ("*",))], [PODS, Rule(("get",), ("x",), ("y/z",))], []),
        ([Rule(("get",), ("",), ("*/scale",))], [Rule(("get",), ("",), ("pods/scale",))], []),
        (
            [Rule(("get",), ("",), ("*/scale",))],
            [Rule(("get",), ("",), ("pods",))],
            [Rule(("get",), ("",), ("pods",))],
        ),
        (
            [Rule(("get",), ("",), ("pods",), ("a",))],
            [Rule(("get",), ("",), ("pods",))],
            [Rule(("get",), ("",), ("pods",))],
        ),
        (
            [PODS],
            [Rule(("get", "create", "delete"), ("",), ("pods",))],
            [Rule(("create", "delete"), ("",), ("pods",))],
        ),
        (
            [PODS],
            [Rule(("*",), ("",), ("pods",))],
            [Rule(("*",), ("",), ("pods",))],
        ),
        ([Rule(("get",), urls=("/a/*",))], [Rule(("get",), urls=("/a/b", "/a/*"))], []),
        (
            [Rule(("get",), urls=("/a/*",))],
            [Rule(("get",), urls=("/b", "*"))],
            [Rule(("get",), urls=("/b",)), Rule(("get",), urls=("*",))],
        ),
        ([], [], []),
    ],
)
def test_what_is_missing(held, wanted, lacking) -> None:
    assert cover.missing(held, wanted) == lacking


def test_each_part_must_lie_within_one_rule_but_a_rule_within_several() -> None:
    held = [Rule(("get",), ("",), ("pods",)), Rule(("list",), ("",), ("pods",))]
    assert cover.missing(held, [PODS]) == []
    names = [Rule(("get",), ("",), ("pods",), (name,)) for name in ("a", "b")]
    assert cover.missing(names, [Rule(("get",), ("",), ("pods",), ("a", "b"))]) == []


def test_a_monstrous_role_is_not_compared() -> None:
    many = tuple(str(number) for number in range(100))
    with pytest.raises(cover.TooManyParts):
        cover.missing([], [Rule(many, many, many, many)])


def test_missing_rules_are_written_as_the_reference_does() -> None:
    lacking = [
        Rule(("get", "list"), ("",), ("pods",), ("a",)),
        Rule(("get",), urls=("/x",)),
    ]
    assert cover.text_of(lacking) == (
        '{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get" "list"]}\n'
        '{NonResourceURLs:["/x"], Verbs:["get"]}'
    )


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(worlds.rules, max_size=3),
    st.lists(worlds.rules, max_size=2),
    st.lists(worlds.requests, max_size=30),
)
def test_what_is_covered_grants_nothing_new(held, wanted, requests) -> None:
    """If nothing is missing, no request is allowed by the wanted rules alone."""
    if cover.missing(held, wanted):
        return
    for info, rule in itertools.product(requests, wanted):
        if rule.allows(info):
            assert any(owner.allows(info) for owner in held)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(worlds.rules, max_size=3), st.lists(worlds.rules, max_size=2))
def test_what_is_missing_is_all_that_was(held, wanted) -> None:
    lacking = cover.missing(held, wanted)
    assert cover.missing([*held, *lacking], wanted) == []
    assert cover.missing(wanted, lacking) == []


@pytest.mark.slow
def test_comparing_takes_time_in_proportion_to_the_rules() -> None:
    def comparing(count: int) -> Callable[[], object]:
        held = [Rule(("get",), ("",), ("pods",), (f"n{n}",)) for n in range(count)]
        wanted = [Rule(("get",), ("",), ("pods",), (f"n{n}", "no")) for n in range(count)]
        return lambda: cover.missing(held, wanted)

    assert scaling.growth(comparing, 500) < scaling.LINEAR


def test_no_more_is_looked_for_than_is_asked_for() -> None:
    wanted = [Rule(("get",), ("",), ("pods",), (f"n{n}",)) for n in range(1_000)]
    assert cover.missing([], wanted, at_most=3) == wanted[:3]
    assert cover.missing(wanted, wanted, at_most=3) == []


def test_rules_of_a_caller_who_holds_endlessly_many_are_not_compared() -> None:
    held = [Rule(("get",), ("",), ("pods",), (f"n{n}",)) for n in range(MAX_TEXTS // 4)]
    assert cover.bounded(held) is held
    with pytest.raises(cover.TooManyParts, match="held by the caller"):
        cover.bounded([*held, PODS])


def test_endless_urls_are_not_compared() -> None:
    held = [Rule(("get",), urls=(f"/a{n}/*",)) for n in range(1_000)]
    with pytest.raises(cover.TooManyParts, match="URLs"):
        cover.missing(held, [Rule(("get",), urls=(f"/b{n}",)) for n in range(1_000)])
