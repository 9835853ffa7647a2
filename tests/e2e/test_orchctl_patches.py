"""A patch gives the same object whoever applies it: the command to a file, or the server.

The examples of RFC 6902 and RFC 7386, the strategic directives, and random ones. The document that
is patched stands in a field of a Node that the server keeps without knowing it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.apiserver import running
from tests.orch.ctl.conftest import Result, run_command

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "annotations": {"a": "1", "b": "2"},
                 "finalizers": ["x.io/a", "x.io/b"]},
    "spec": {},
    "status": {
        "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "capacity": {"cpu": "1"},
    },
}  # fmt: skip
ASSIGNED = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


class Twice:
    """The same patch on a Node of the server, and on a file that holds the same."""

    def __init__(self, kubeconfig: str, folder: Path) -> None:
        self._kubeconfig = kubeconfig
        self._object, self._patch = folder / "node.json", folder / "patch.json"

    def store(self, record: dict[str, Any]) -> None:
        """Make it what is stored, its status included."""
        self._object.write_text(json.dumps(record))
        for part in ((), ("--subresource=status",)):
            done = self._server("replace", "--validate=ignore", "-f", str(self._object), *part)
            assert done.code == 0, done.err

    def patch(self, patch: Any, kind: str, *options: str) -> tuple[Result, Result]:
        """(on the server, locally); nothing is stored."""
        self._patch.write_text(json.dumps(patch))
        words = ("patch", "--type", kind, "--patch-file", str(self._patch), "-o", "json")
        remote = self._server(*words, "node", "n", "--dry-run=server", *options)
        return remote, run_command(*words, "--local", "-f", str(self._object))

    def _server(self, *words: str) -> Result:
        return run_command(*words, "--kubeconfig", self._kubeconfig)


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twice]:
    folder = tmp_path_factory.mktemp("patches")
    with running(folder):
        kubeconfig = str(folder / "kubeconfig")
        (folder / "made.json").write_text(json.dumps(NODE))
        made = run_command("create", "-f", str(folder / "made.json"), "--kubeconfig", kubeconfig)
        assert made.code == 0, made.err
        yield Twice(kubeconfig, folder)


def _shown(result: Result) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(result.out)
    kept = {key: v for key, v in record["metadata"].items() if key not in ASSIGNED}
    return _without_nulls({**record, "metadata": kept})  # type: ignore[no-any-return]


def _without_nulls(value: Any) -> Any:
    """Equal objects: to the server a member that is null is one that is not there."""
    if isinstance(value, dict):
        return {key: _without_nulls(v) for key, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value


def _op(op: str, path: str, **members: Any) -> dict[str, Any]:
    return {"op": op, "path": path, **{key.rstrip("_"): v for key, v in members.items()}}


# RFC 6902, appendix A.1 to A.16 (A.11 and A.13 are members that JSON forbids twice).
JSON_EXAMPLES: list[tuple[Any, list[dict[str, Any]], Any]] = [
    ({"foo": "bar"}, [_op("add", "/baz", value="qux")], {"baz": "qux", "foo": "bar"}),
    ({"foo": ["bar", "baz"]}, [_op("add", "/foo/1", value="qux")], {"foo": ["bar", "qux", "baz"]}),
    ({"baz": "qux", "foo": "bar"}, [_op("remove", "/baz")], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [_op("remove", "/foo/1")], {"foo": ["bar", "baz"]}),
    ({"baz": "qux"}, [_op("replace", "/baz", value="boo")], {"baz": "boo"}),
    ({"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
     [_op("move", "/qux/thud", from_="/foo/waldo")],
     {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}}),
    ({"foo": ["all", "grass", "cows", "eat"]}, [_op("move", "/foo/3", from_="/foo/1")],
     {"foo": ["all", "cows", "eat", "grass"]}),
    ({"baz": "qux", "foo": ["a", 2, "c"]},
     [_op("test", "/baz", value="qux"), _op("test", "/foo/1", value=2)],
     {"baz": "qux", "foo": ["a", 2, "c"]}),
    ({"baz": "qux"}, [_op("test", "/baz", value="bar")], None),
    ({"foo": "bar"}, [_op("add", "/child", value={"grandchild": {}})],
     {"foo": "bar", "child": {"grandchild": {}}}),
    ({"foo": "bar"}, [_op("add", "/baz/bat", value="qux")], None),
    ({"/": 9, "~1": 10}, [_op("test", "/~01", value=10)], {"/": 9, "~1": 10}),
    ({"/": 9, "~1": 10}, [_op("test", "/~01", value="10")], None),
    ({"foo": ["bar"]}, [_op("add", "/foo/-", value=["abc", "def"])],
     {"foo": ["bar", ["abc", "def"]]}),
]  # fmt: skip


@pytest.mark.parametrize(("document", "patch", "result"), JSON_EXAMPLES)
def test_examples_of_rfc_6902(twice: Twice, document: Any, patch: Any, result: Any) -> None:
    twice.store({**NODE, "spec": {"document": document}})
    placed = [
        {key: f"/spec/document{v}" if key in ("path", "from") else v for key, v in op.items()}
        for op in patch
    ]
    for done in twice.patch(placed, "json"):
        if result is None:
            assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        else:
            assert _shown(done)["spec"] == {"document": _without_nulls(result)}


# RFC 7386, appendix A.
MERGE_EXAMPLES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("document", "patch", "result"), MERGE_EXAMPLES)
def test_examples_of_rfc_7386(twice: Twice, document: Any, patch: Any, result: Any) -> None:
    twice.store({**NODE, "spec": {"document": document}})
    for done in twice.patch({"spec": {"document": patch}}, "merge"):
        assert _shown(done)["spec"]["document"] == _without_nulls(result)


SLOW = settings(
    max_examples=20, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
SCALARS = st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "y"])
KEYS = st.sampled_from(["a", "b", "c"])


def _json(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=10,
    )


JSON = _json(SCALARS)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=3)
PATCHES = st.dictionaries(KEYS, st.none() | _json(st.none() | SCALARS), max_size=3)
POINTERS = st.sampled_from(["/a", "/b", "/a/b", "/a/0", "/b/-", "/c/a", ""])
OPERATIONS = st.builds(
    lambda op, path, source, value: _op(
        op, f"/spec/document{path}", from_=f"/spec/document{source}", value=value
    ),
    st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
    POINTERS, POINTERS, JSON,
)  # fmt: skip


def agree(results: tuple[Result, Result], *parts: str) -> None:
    """The same parts of the object; or both refuse, with one line each."""
    remote, local = results
    if remote.code or local.code:
        assert (remote.code, local.code) == (1, 1), (remote.err, local.err)
        assert "Traceback" not in remote.err + local.err
        return
    shown = [{part: _shown(done).get(part) for part in parts} for done in results]
    assert shown[0] == shown[1]


@SLOW
@given(OBJECTS, st.lists(OPERATIONS, min_size=1, max_size=3))
def test_any_json_patch_has_one_result(twice: Twice, document: Any, patch: Any) -> None:
    twice.store({**NODE, "spec": {"document": document}})
    agree(twice.patch(patch, "json"), "metadata", "spec")


@SLOW
@given(OBJECTS, PATCHES)
def test_any_merge_patch_has_one_result(twice: Twice, document: Any, patch: Any) -> None:
    twice.store({**NODE, "spec": {"document": document}})
    agree(twice.patch({"spec": {"document": patch}}, "merge"), "metadata", "spec")


TYPES = st.sampled_from(["A", "B", "C"])
ELEMENTS = st.lists(
    st.builds(lambda t, s: {"type": t, "status": s}, TYPES, st.sampled_from(["True", "Unknown"]))
    | st.builds(lambda t: {"type": t, "$patch": "delete"}, TYPES)
    | st.sampled_from(
        [
            {"$patch": "replace"},
            {"status": "True"},
            {"$patch": "wrong", "type": "A"},
            {"$patch": "merge", "type": "A", "status": "True"},
        ]
    ),
    max_size=3,
)
ORDERS = st.lists(TYPES, unique=True).map(lambda types: [{"type": t} for t in types])
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "conditions": ELEMENTS,
        "$setElementOrder/conditions": ORDERS,
        "capacity": st.dictionaries(
            st.sampled_from(["cpu", "memory"]), st.sampled_from(["2", None]), max_size=2
        ) | st.sampled_from(
            [{"$patch": "replace", "memory": "1"}, {"$patch": "delete"},
             {"$patch": "merge", "cpu": "2"}]
        ),
        "$retainKeys": st.just(["conditions"]) | st.just(["conditions", "capacity"]),
    },
)  # fmt: skip


@SLOW
@given(STATUS)
def test_any_strategic_patch_of_a_status_has_one_result(twice: Twice, status: Any) -> None:
    twice.store(NODE)
    agree(twice.patch({"status": status}, "strategic", "--subresource=status"), "status")


FINALIZERS = st.lists(st.sampled_from(["x.io/a", "x.io/b", "x.io/c"]), max_size=3, unique=True)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "finalizers": FINALIZERS,
        "$deleteFromPrimitiveList/finalizers": FINALIZERS,
        "$setElementOrder/finalizers": FINALIZERS,
        "annotations": st.dictionaries(KEYS, st.sampled_from(["9", None]), max_size=2)
        | st.just({"$patch": "replace", "c": "3"}) | st.just(None),
    },
)  # fmt: skip


@SLOW
@given(METADATA)
def test_any_strategic_patch_of_metadata_has_one_result(twice: Twice, metadata: Any) -> None:
    twice.store(NODE)
    agree(twice.patch({"metadata": metadata}, "strategic"), "metadata", "spec")


WHOLE = st.fixed_dictionaries(
    {},
    optional={
        "$patch": st.sampled_from(["delete", "replace", "merge"]),
        "$retainKeys": st.sampled_from([["spec"], ["apiVersion", "kind", "metadata", "spec"]]),
        "kind": st.sampled_from(["Node", None]),
        "apiVersion": st.sampled_from(["v1", None]),
        "metadata": st.just(None) | st.just({"$patch": "delete"}) | METADATA,
        "spec": st.just(None) | st.just({"unschedulable": True}),
    },
)


@SLOW
@given(WHOLE)
def test_any_strategic_patch_of_a_whole_object_has_one_result(twice: Twice, patch: Any) -> None:
    twice.store(NODE)
    agree(twice.patch(patch, "strategic"), "metadata", "spec")


A, B = NODE["status"]["conditions"]
C = {"type": "C", "status": "True"}
IN_ORDER = {"finalizers": ["x.io/b", "x.io/a"]}
# Each directive has an effect, and it is this one; None where it is refused.
DIRECTIVES: list[tuple[str, Any, Any]] = [
    ("status", {"conditions": [{"$patch": "replace"}, C]}, {"conditions": [C]}),
    ("status", {"conditions": [{"$patch": "delete", "type": "A"}]}, {"conditions": [B]}),
    ("status", {"conditions": [{"$patch": "merge", "type": "A"}]}, None),
    ("status", {"capacity": {"$patch": "replace", "memory": "1"}}, {"capacity": {"memory": "1"}}),
    ("status", {"capacity": {"$patch": "delete"}}, {"capacity": {}}),
    ("status", {"capacity": {"$patch": "merge", "memory": "1"}},
     {"capacity": {"cpu": "1", "memory": "1"}}),
    ("status", {"$retainKeys": ["capacity"], "capacity": {"cpu": "2"}},
     {"conditions": None, "addresses": None, "capacity": {"cpu": "2"}}),
    ("status", {"$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}]},
     {"conditions": [B, A]}),
    ("metadata", {"$deleteFromPrimitiveList/finalizers": ["x.io/a"]}, {"finalizers": ["x.io/b"]}),
    ("metadata", {"$setElementOrder/finalizers": ["x.io/b", "x.io/a"], **IN_ORDER}, IN_ORDER),
    ("metadata", {"annotations": {"$patch": "replace", "c": "3"}}, {"annotations": {"c": "3"}}),
]  # fmt: skip


@pytest.mark.parametrize(("part", "patch", "after"), DIRECTIVES)
def test_each_directive_has_its_effect(twice: Twice, part: str, patch: Any, after: Any) -> None:
    twice.store(NODE)
    options = ("--subresource=status",) if part == "status" else ()
    for done in twice.patch({part: patch}, "strategic", *options):
        if after is None:
            assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        else:
            shown = json.loads(done.out)[part]
            assert {key: shown.get(key) for key in after} == after


def test_a_custom_resource_takes_no_strategic_patch(tmp_path: Path) -> None:
    record = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    (tmp_path / "w.json").write_text(json.dumps(record))
    words = ("patch", "--local", "-f", str(tmp_path / "w.json"), "-p", '{"a":1}')
    refused = run_command(*words)
    assert refused.code == 1
    assert refused.err.startswith("error: Widget of example.com/v1 is a custom resource")
    assert "use --type merge or --type json" in refused.err
    assert run_command(*words, "--type", "merge", "-o", "jsonpath={.a}").out == "1"
