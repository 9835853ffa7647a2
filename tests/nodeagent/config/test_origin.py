"""Who set a field: the last file or flag that says something about it, else the default."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config.layers import FlagValue, Layers
from nodeagent.config.load import merge_documents
from nodeagent.config.origin import Leaf, leaves, nearest_origin, origin_of
from orch.component.yaml_file import Document, FieldPath, parse_yaml


def layers(*files: str, flags: tuple[FlagValue, ...] = ()) -> Layers:
    documents = [parse_yaml(text, source=f"f{number}") for number, text in enumerate(files)]
    return Layers(documents[0], tuple(documents[1:]), flags)


def shown(path: FieldPath, found: Layers) -> str:
    return str(origin_of(path, found))


def test_the_last_layer_with_a_value_is_the_origin() -> None:
    found = layers("a: 1\nb: 1\n", "\na: 2\n", "m: {x: 1}\n")
    assert shown(("a",), found) == "f1:2"
    assert shown(("b",), found) == "f0:2"
    assert shown(("c",), found) == "default"
    assert shown(("m", "x"), found) == "f2:1"
    assert shown(("m", "y"), found) == "default"


def test_a_flag_wins_over_every_file_for_the_keys_it_names() -> None:
    flags = (FlagValue("--gates", ("g",), {"A": True}), FlagValue("--a", ("a",), 3))
    found = layers("a: 1\ng: {A: false, B: true}\n", flags=flags)
    assert shown(("a",), found) == "flag --a"
    assert shown(("g", "A"), found) == "flag --gates"
    assert shown(("g", "B"), found) == "f0:2"


def test_a_null_resets_values_of_earlier_files() -> None:
    found = layers("s: {x: 1, y: 2}\n", "s: null\n", "s: {y: 3}\n")
    assert shown(("s", "x"), found) == "default, reset by f1:1"
    assert shown(("s", "y"), found) == "f2:1"


def test_an_error_below_a_field_is_its_setters() -> None:
    found = layers("l:\n- {k: 1}\n")
    assert str(nearest_origin(("l", 0, "k"), found)) == "f0:2"
    assert str(nearest_origin(("l", 0, "missing"), found)) == "f0:2"
    assert str(nearest_origin(("nobody", "x"), found)) == "default"


def test_leaves_are_scalars_whole_lists_and_empty_maps() -> None:
    record = {"a": 1, "l": [1, {"x": 2}], "e": {}, "m": {"k": {"d": None}}}
    paths = [leaf.path for leaf in leaves(record, layers("a: 1\n"))]
    assert paths == [("a",), ("l",), ("e",), ("m", "k", "d")]


values = st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2)
documents = st.fixed_dictionaries(
    {},
    optional={
        "a": values | st.none(),
        "m": st.dictionaries(st.sampled_from("xyz"), values | st.none(), max_size=3) | st.none(),
    },
)


@given(st.lists(documents, min_size=1, max_size=4))
def test_the_document_named_as_origin_holds_the_effective_value(files: list[Any]) -> None:
    read = [Document(str(number), value) for number, value in enumerate(files)]
    merged = merge_documents({}, files)
    for leaf in leaves(merged, Layers(read[0], tuple(read[1:]), ())):
        if leaf.path == () or leaf.value == {}:
            continue
        assert leaf.origin.kind == "file"
        assert _at(files[int(leaf.origin.source)], leaf) == leaf.value


def _at(value: Any, leaf: Leaf) -> Any:
    for part in leaf.path:
        value = value[part]
    return value
