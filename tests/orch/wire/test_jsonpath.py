"""The dialect of client-go `util/jsonpath`; kubectl itself is asked where it is there."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.wire import jsonpath
from orch.wire.jsonpath import JsonPathError

RECORD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"orch.io/app": "x"}, "generation": 3},
    "spec": {
        "containers": [
            {"name": "a", "image": "i:1", "ports": [{"containerPort": 80}], "tty": True},
            {"name": "b", "image": "i:2"},
            {"name": "c", "image": "j:1"},
        ]
    },
}
CASES = [
    ("{.metadata.name}", "web"),
    ("{.metadata.name}{'\\n'}{.kind}", "web\nPod"),
    ("plain text", "plain text"),
    ("name={.metadata.name};", "name=web;"),
    ("{$.metadata.name}", "web"),
    ("{@.metadata.name}", "web"),
    ("{.metadata['name']}", "web"),
    ("{.metadata.labels.orch\\.io/app}", "x"),
    ("{.metadata.labels['orch\\.io/app']}", "x"),
    ("{.spec.containers[*].name}", "a b c"),
    ("{.spec.containers[0].name}", "a"),
    ("{.spec.containers[-1].name}", "c"),
    ("{.spec.containers[0:2].name}", "a b"),
    ("{.spec.containers[1:].name}", "b c"),
    ("{.spec.containers[0,2].name}", "a c"),
    ("{.spec.containers[0:3:2].name}", "a c"),
    ('{.spec.containers[?(@.name=="b")].image}', "i:2"),
    ("{.spec.containers[?(@.image!='i:1')].name}", "b c"),
    ("{.spec.containers[?(@.ports)].name}", "a"),
    ("{.spec.containers[?(@.ports[0].containerPort>70)].name}", "a"),
    ("{range .spec.containers[*]}[{.name}:{.image}]{end}", "[a:i:1][b:i:2][c:j:1]"),
    ('{range .spec.containers[*]}{.name}{"\\t"}{end}', "a\tb\tc\t"),
    ("{..name}", "web a b c"),
    ("{..containerPort}", "80"),
    ("{.spec.containers[0].tty} {.metadata.generation}", "true 3"),
    ("{.spec.containers[0].ports}", '[{"containerPort":80}]'),
    ("{.metadata.labels}", '{"orch.io/app":"x"}'),
    ("{.nothing}", ""),
    ("{.nothing.below[*].this}", ""),
    ("{.metadata.name.deeper}", ""),
]


def _rendered(template: str) -> str:
    return jsonpath.render(jsonpath.parse(template), RECORD)


@pytest.mark.parametrize(("template", "text"), CASES)
def test_a_template_gives_its_text(template: str, text: str) -> None:
    assert _rendered(template) == text


KUBECTL = shutil.which("kubectl")


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_kubectl_gives_the_same_texts(tmp_path: Path) -> None:
    (tmp_path / "pod.json").write_text(json.dumps(RECORD))
    together = "|".join(template for template, _ in CASES if "plain" not in template)
    words = ["annotate", "--local", "-f", str(tmp_path / "pod.json"), "x-"]
    done = subprocess.run(
        [str(KUBECTL), *words, "-o", f"jsonpath={together}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert _comparable(done.stdout) == _comparable(_rendered(together))


def _comparable(texts: str) -> list[list[str]]:
    """The words of each text sorted: kubectl walks objects in no order, which `..` shows."""
    return [sorted(text.split(" ")) for text in texts.split("|")]


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{.a", "a brace is not closed"),
        ("{range .a[*]}x", "{range} without {end}"),
        ("x{end}", "{end} without {range}"),
        ("{.a[}", "an index, a slice or a quoted name is expected"),
        ("{.a[?(@.b]}", "')' is expected"),
        ("{!}", "a path is expected"),
    ],
)
def test_a_broken_template_says_where(template: str, why: str) -> None:
    with pytest.raises(JsonPathError) as caught:
        jsonpath.parse(template)
    assert why in str(caught.value)
    assert repr(template) in str(caught.value)


def test_an_index_beyond_the_end_is_an_error() -> None:
    with pytest.raises(JsonPathError, match=r"the list has 3 elements: there is no \[5\]"):
        _rendered("{.spec.containers[5].name}")


@pytest.mark.parametrize("path", ["metadata.name", ".metadata.name", "{.metadata.name}"])
def test_a_single_path_needs_no_braces(path: str) -> None:
    assert jsonpath.values(jsonpath.relaxed(path), RECORD) == ["web"]


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(template: str) -> None:
    try:
        nodes = jsonpath.parse(template)
    except JsonPathError:
        return
    try:
        assert isinstance(jsonpath.render(nodes, RECORD), str)
    except JsonPathError as error:
        assert "elements" in str(error)


KEYS = st.text("abcXYZ09._/-", min_size=1, max_size=8)


@given(st.dictionaries(KEYS, st.integers() | st.text(max_size=5), min_size=1), st.data())
def test_every_key_can_be_named(record: dict[str, Any], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(record)))
    escaped = key.replace(".", "\\.")
    assert jsonpath.values(jsonpath.parse(f"{{['{escaped}']}}"), record) == [record[key]]
    if not key.startswith("-"):
        assert jsonpath.values(jsonpath.parse(f"{{.{escaped}}}"), record) == [record[key]]
