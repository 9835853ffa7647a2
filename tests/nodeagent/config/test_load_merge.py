"""Merge rules: the specification's tables by example, and their laws as properties."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config.load import merge_documents

Document = dict[str, Any]

# reference/nodeagent.md §11.4, documents as written: base, drop-ins → result (rows with flags are
# tested in test_load.py)
ROWS: dict[str, tuple[Document, list[Document], Document]] = {
    "1": (
        {"port": 9090, "readOnlyPort": 10257},
        [{"port": 9090}, {"port": 8080, "readOnlyPort": 10255}],
        {"port": 8080, "readOnlyPort": 10255},
    ),
    "2": (
        {"readOnlyPort": 10256, "reserved": {"memory": "100Mi"}, "syncFrequency": "5m"},
        [
            {"readOnlyPort": 10255, "reserved": {"memory": "150Mi", "cpu": "200m"}},
            {"readOnlyPort": 10257, "reserved": {"memory": "100Mi"}},
        ],
        {
            "readOnlyPort": 10257,
            "reserved": {"memory": "100Mi", "cpu": "200m"},
            "syncFrequency": "5m",
        },
    ),
    "3": (
        {"port": 9090, "clusterDNS": [".3", ".4"]},
        [
            {"port": 9090, "systemReserved": {"memory": "1Gi"}},
            {
                "port": 8080,
                "readOnlyPort": 10255,
                "systemReserved": {"memory": "2Gi"},
                "clusterDNS": [".1", ".5", ".8"],
            },
        ],
        {
            "port": 8080,
            "clusterDNS": [".1", ".5", ".8"],
            "systemReserved": {"memory": "2Gi"},
            "readOnlyPort": 10255,
        },
    ),
    "6": (
        {},
        [
            {
                "headers": {"A": ["a"], "B": ["b"]},
                "shutdown": [{"p": 1, "s": 60}, {"p": 2, "s": 45}, {"p": 3, "s": 30}],
                "gates": {"D": True, "P": True},
                "ttl": {"yes": "5m", "no": "30s"},
            },
            {
                "headers": {"A": ["a2"], "B": ["b2"]},
                "shutdown": [{"p": 1, "s": 19}, {"p": 2, "s": 41}, {"p": 6, "s": 30}],
                "gates": {"P": False, "R": True},
                "ttl": {"yes": "6m", "no": "40s"},
            },
        ],
        {
            "headers": {"A": ["a2"], "B": ["b2"]},
            "shutdown": [{"p": 1, "s": 19}, {"p": 2, "s": 41}, {"p": 6, "s": 30}],
            "gates": {"D": True, "P": False, "R": True},
            "ttl": {"yes": "6m", "no": "40s"},
        },
    ),
    "7": (
        {
            "port": 20250,
            "authorization": {"mode": "Webhook", "webhook": {"yes": "5m", "no": "30s"}},
            "serializeImagePulls": False,
            "address": ".1",
        },
        [
            {
                "authorization": {"mode": "AlwaysAllow", "webhook": {"yes": "8m", "no": "45s"}},
                "address": ".8",
            }
        ],
        {
            "port": 20250,
            "authorization": {"mode": "AlwaysAllow", "webhook": {"yes": "8m", "no": "45s"}},
            "serializeImagePulls": False,
            "address": ".8",
        },
    ),
    "8": (
        {"clusterDNS": [".9", ".8"], "other": 1},
        [{"clusterDNS": [".2", ".3", ".5"]}],
        {"clusterDNS": [".2", ".3", ".5"], "other": 1},
    ),
    "9": (
        {
            "gates": {"AllAlpha": False, "MemoryQoS": True},
            "headers": {"support": ["a", "b"], "custom": ["c", "d"]},
        },
        [
            {
                "gates": {"MemoryQoS": False, "Tracing": True, "DRA": True},
                "headers": {"custom": ["c", "d2"]},
            }
        ],
        {
            "gates": {"AllAlpha": False, "MemoryQoS": False, "Tracing": True, "DRA": True},
            "headers": {"support": ["a", "b"], "custom": ["c", "d2"]},
        },
    ),
    "10": (
        {
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": "X"},
            },
            "clusterDNS": ["a", "b"],
        },
        [{"authentication": {"x509": {"clientCAFile": "Y"}}}, {"clusterDNS": ["c"]}],
        {
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": "Y"},
            },
            "clusterDNS": ["c"],
        },
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_reference_cases_merge_as_there(row: str) -> None:
    base, drop_ins, result = ROWS[row]
    assert merge_documents(base, drop_ins) == result


scalars = st.booleans() | st.integers(-9, 9) | st.text("abc", max_size=3)
lists = st.lists(scalars | st.fixed_dictionaries({"k": scalars}), max_size=3)
keys = st.sampled_from("abcd")


def shaped(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    """Documents in which a field has one shape in every file, as a typed record has."""
    return st.fixed_dictionaries(
        {},
        optional={
            "scalar": inner | scalars,
            "list": inner | lists,
            "scalarMap": inner | st.dictionaries(keys, inner | scalars, max_size=3),
            "listMap": inner | st.dictionaries(keys, inner | lists, max_size=3),
            "struct": st.fixed_dictionaries(
                {}, optional={"x": inner | scalars, "deep": st.fixed_dictionaries({"y": scalars})}
            ),
        },
    )


without_null = shaped(st.nothing())
with_null = shaped(st.none())


@given(without_null)
def test_an_empty_file_changes_nothing(base: Document) -> None:
    assert merge_documents(base, []) == base
    assert merge_documents(base, [{}, {}]) == base
    assert merge_documents({}, [base]) == base


@given(without_null, st.lists(with_null, max_size=5), st.integers(0, 5))
def test_files_may_be_applied_in_any_number_of_steps(
    base: Document, files: list[Document], at: int
) -> None:
    first = merge_documents(base, files[:at])
    assert merge_documents(first, files[at:]) == merge_documents(base, files)


@given(without_null, without_null, without_null)
def test_files_that_delete_nothing_may_be_merged_with_each_other_first(
    base: Document, one: Document, other: Document
) -> None:
    together = merge_documents(one, [other])
    assert merge_documents(base, [together]) == merge_documents(base, [one, other])


@given(with_null, with_null)
def test_a_list_is_replaced_whole(base: Document, drop_in: Document) -> None:
    merged = merge_documents(base, [drop_in])
    if isinstance(drop_in.get("list"), list):
        assert merged["list"] == drop_in["list"]
    for key, value in (drop_in.get("listMap") or {}).items():
        if value is not None:
            assert merged["listMap"][key] == value


@given(without_null, without_null)
def test_keys_that_a_file_does_not_mention_stay(base: Document, drop_in: Document) -> None:
    merged = merge_documents(base, [drop_in])
    for name in ("scalarMap", "struct"):
        kept = {k: v for k, v in base.get(name, {}).items() if k not in drop_in.get(name, {})}
        assert {k: merged[name][k] for k in kept} == kept


@given(without_null, st.sampled_from(["scalar", "list", "scalarMap", "listMap", "struct"]))
def test_null_deletes_and_nothing_else(base: Document, name: str) -> None:
    assert merge_documents(base, [{name: None}]) == {k: v for k, v in base.items() if k != name}


@given(with_null, st.lists(with_null, max_size=3))
def test_merging_changes_no_input_and_shares_nothing(base: Document, files: list[Document]) -> None:
    before = repr((base, files))
    merged = merge_documents(base, files)
    for value in merged.values():
        if isinstance(value, dict | list):
            value.clear()
    assert repr((base, files)) == before
