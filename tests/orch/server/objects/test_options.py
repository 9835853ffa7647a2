from __future__ import annotations

import pytest

from orch.server.objects.options import (
    Continue,
    DeleteOptions,
    ListOptions,
    WriteOptions,
    parse_continue,
    parse_delete_options,
    parse_list_options,
    parse_write_options,
)
from orch.wire.errors import ApiError


@pytest.mark.parametrize(
    ("query", "watch", "options"),
    [
        ({}, False, ListOptions()),
        ({"resourceVersion": "0"}, False, ListOptions()),
        ({"resourceVersion": "7"}, False, ListOptions(resource_version=7)),
        (
            {"resourceVersion": "7", "resourceVersionMatch": "Exact"},
            False,
            ListOptions(resource_version=7, exact=True),
        ),
        (
            {"resourceVersion": "7", "resourceVersionMatch": "NotOlderThan"},
            False,
            ListOptions(resource_version=7),
        ),
        ({"limit": "500"}, False, ListOptions(limit=500)),
        ({"limit": "-1"}, False, ListOptions()),
        ({"limit": "5", "resourceVersion": "0"}, False, ListOptions()),
        (
            {"limit": "5", "resourceVersion": "7"},
            False,
            ListOptions(resource_version=7, exact=True, limit=5),
        ),
        (
            {"limit": "5", "resourceVersion": "7", "resourceVersionMatch": "NotOlderThan"},
            False,
            ListOptions(resource_version=7, limit=5),
        ),
        ({"limit": ""}, False, ListOptions()),
        ({"timeoutSeconds": "9"}, True, ListOptions(timeout_s=9)),
        ({"timeoutSeconds": "0"}, True, ListOptions()),
        ({"timeoutSeconds": "-5"}, True, ListOptions(timeout_s=0)),
        ({"allowWatchBookmarks": "true"}, True, ListOptions(bookmarks=True)),
        (
            {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"},
            True,
            ListOptions(send_initial_events=True),
        ),
        (
            {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"},
            True,
            ListOptions(send_initial_events=False),
        ),
    ],
)
def test_list_options_are_read(query, watch, options) -> None:
    assert parse_list_options(query, watch=watch) == options


@pytest.mark.parametrize(
    ("query", "watch", "code", "field"),
    [  # AM:apis/meta/internalversion/validation/validation_test.go
        ({"resourceVersionMatch": "Exact"}, False, 422, "resourceVersionMatch"),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            False,
            422,
            "resourceVersionMatch",
        ),
        (
            {"resourceVersionMatch": "foo", "resourceVersion": "1"},
            False,
            422,
            "resourceVersionMatch",
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "1", "continue": "x"},
            False,
            422,
            "resourceVersionMatch",
        ),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "1"}, True, 422, "resourceVersionM"),
        (
            {"resourceVersionMatch": "Exact", "sendInitialEvents": "true"},
            True,
            422,
            'supported values: "NotOlderThan"',
        ),
        ({"sendInitialEvents": "true"}, False, 422, "sendInitialEvents"),
        ({"sendInitialEvents": "true"}, True, 422, "resourceVersionMatch"),
        ({"resourceVersion": "-1"}, False, 400, "resourceVersion"),
        ({"resourceVersion": "१"}, False, 400, "resourceVersion"),
        ({"limit": "many"}, False, 400, "limit"),
        ({"limit": "many", "resourceVersion": "0"}, False, 400, "limit"),
        ({"resourceVersion": "7", "continue": Continue(7, "x\0").encode()}, False, 400, "continue"),
        ({"timeoutSeconds": "long"}, True, 400, "timeoutSeconds"),
        ({"continue": "x"}, False, 400, "continue"),
    ],
)
def test_list_options_that_contradict_are_refused(query, watch, code, field) -> None:
    with pytest.raises(ApiError, match=field) as caught:
        parse_list_options(query, watch=watch)
    assert caught.value.code == code


def test_a_continue_token_survives_the_way_to_the_client_and_back() -> None:
    token = Continue(7, "ns/name\0").encode()
    assert "=" not in token
    assert parse_continue(token) == Continue(7, "ns/name\0")


@pytest.mark.parametrize(
    "token",
    [
        "nonsense!", "", "e30", "bnVsbA", "W10",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjIiLCJydiI6Nywic3RhcnQiOiJ4In0",  # another version
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6IngiLCJzdGFydCI6IngifQ",  # rv is no number
    ],
)  # fmt: skip
def test_a_token_this_server_did_not_make_is_refused(token: str) -> None:
    with pytest.raises(ApiError, match="continue key is not valid"):
        parse_continue(token)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ({}, WriteOptions(manager="client")),
        ({"dryRun": "All"}, WriteOptions(dry_run=True, manager="client")),
        ({"fieldValidation": "Warn"}, WriteOptions(field_validation="Warn", manager="client")),
        ({"fieldManager": "kubectl-create"}, WriteOptions(manager="kubectl-create", named=True)),
    ],
)
def test_write_options_are_read(query, options) -> None:
    assert parse_write_options(query, agent="client/v1 (linux)") == options


@pytest.mark.parametrize(("force", "forced"), [({}, False), ({"force": "true"}, True)])
def test_an_apply_must_name_its_manager(force, forced) -> None:
    query = {"fieldManager": "x", **force}
    assert parse_write_options(query, "PatchOptions", applies=True).force is forced
    with pytest.raises(ApiError, match="fieldManager: Required value: is required for apply"):
        parse_write_options(force, "PatchOptions", "client/v1", applies=True)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"dryRun": "Some"}, 422),
        ({"dryRun": ""}, 422),
        ({"fieldValidation": "Sometimes"}, 422),
        ({"fieldManager": "x" * 129}, 422),
        ({"fieldManager": "é" * 65}, 422),
        ({"fieldManager": "a\nb"}, 422),
        ({"force": "true"}, 422),
    ],
)
def test_write_options_that_make_no_sense_are_refused(query, code) -> None:
    with pytest.raises(ApiError) as caught:
        parse_write_options(query, "PatchOptions")
    assert (caught.value.code, caught.value.kind) == (code, "PatchOptions")


BY_ORPHAN = DeleteOptions(propagation="Background", cascades=True)


@pytest.mark.parametrize(
    ("query", "body", "options"),
    [
        ({}, {}, DeleteOptions()),
        ({"gracePeriodSeconds": "3"}, {}, DeleteOptions(grace_period_s=3)),
        ({"gracePeriodSeconds": "3"}, {"gracePeriodSeconds": 0}, DeleteOptions(grace_period_s=0)),
        (
            {},
            {"preconditions": {"uid": "u", "resourceVersion": "7"}},
            DeleteOptions(uid="u", resource_version="7"),
        ),
        ({}, {"propagationPolicy": "Foreground"}, DeleteOptions(propagation="Foreground")),
        ({"propagationPolicy": "Orphan"}, {}, DeleteOptions(propagation="Orphan")),
        ({}, {"orphanDependents": True}, DeleteOptions(propagation="Orphan")),
        ({}, {"orphanDependents": False}, BY_ORPHAN),
        ({"orphanDependents": "true"}, {}, DeleteOptions(propagation="Orphan")),
        ({"orphanDependents": "0"}, {}, BY_ORPHAN),
        (
            {"orphanDependents": "true"},
            {"orphanDependents": False},
            BY_ORPHAN,
        ),
        ({}, {"dryRun": ["All"]}, DeleteOptions(dry_run=True)),
        ({"dryRun": "All"}, {}, DeleteOptions(dry_run=True)),
    ],
)
def test_delete_options_come_from_body_and_query(query, body, options) -> None:
    assert parse_delete_options(query, body) == options


@pytest.mark.parametrize(
    ("query", "body", "code"),
    [
        ({}, {"propagationPolicy": "Sideways"}, 422),
        ({}, {"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({}, {"gracePeriodSeconds": "soon"}, 422),
        ({}, {"gracePeriodSeconds": True}, 422),
        ({"gracePeriodSeconds": "soon"}, {}, 400),
        ({}, {"dryRun": ["Some"]}, 422),
        ({}, {"dryRun": ["All", "Some"]}, 422),
        *(({}, {"dryRun": [value]}, 422) for value in ("", None, 0, [], {})),
        ({"dryRun": ""}, {}, 422),
        ({}, {"preconditions": "x"}, 422),
        ({}, {"preconditions": {"uid": 5}}, 422),
        ({"orphanDependents": "true"}, {"propagationPolicy": "Orphan"}, 422),
        ({}, {"dryRun": "All"}, 422),
    ],
)
def test_delete_options_that_contradict_are_refused(query, body, code) -> None:
    with pytest.raises(ApiError) as caught:
        parse_delete_options(query, body)
    assert caught.value.code == code


def test_of_many_wrong_preconditions_a_hundred_are_told() -> None:
    """19,000 made an answer of 3 MB, in one piece."""
    with pytest.raises(ApiError) as caught:
        parse_delete_options({}, {"preconditions": {f"k{n}": n for n in range(1000)}})
    assert len(caught.value.causes) == 100
