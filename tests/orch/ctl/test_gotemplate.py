from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orch.ctl import gotemplate
from orch.ctl.gotemplate import GoTemplateError

RECORD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"orch.io/app": "x", "b": "y"}, "generation": 2222824},
    "spec": {
        "hostNetwork": False,
        "containers": [{"name": "a", "image": "i:1", "tty": True}, {"name": "b", "image": "i:2"}],
    },
}
# What each gives is what kubectl v1.32 gives: the test below asks it.
CASES = [
    ("{{.metadata.name}}", "web"),
    ("{{$.kind}} {{(.metadata).name}} {{(index .spec.containers 1).name}}", "Pod web b"),
    ("{{.metadata.labels}} {{.metadata.generation}}", "map[b:y orch.io/app:x] 2222824"),
    ("{{.nope}} {{.nope.deeper}} {{.spec.hostNetwork}}", "<no value> <no value> false"),
    ('{{index .metadata.labels "orch.io/app"}}', "x"),
    ("a  {{- .kind -}}  b{{/* not shown */}}", "aPodb"),
    ("{{range .spec.containers}}{{.name}}={{.image}};{{end}}", "a=i:1;b=i:2;"),
    ("{{range $i, $c := .spec.containers}}{{if $i}},{{end}}{{$c.name}}{{end}}", "a,b"),
    ("{{range $k, $v := .metadata.labels}}{{$k}}={{$v}} {{end}}", "b=y orch.io/app=x "),
    ("{{range .nope}}x{{else}}none{{end}}", "none"),
    ("{{range .spec.containers}}{{.name}}{{break}}{{end}}", "a"),
    ("{{range .spec.containers}}{{if .tty}}{{continue}}{{end}}{{.name}}{{end}}", "b"),
    ("{{if .nope}}a{{else if .kind}}b{{else}}c{{end}}", "b"),
    ("{{if .nope}}a{{else}}{{if .kind}}b{{end}}{{end}}c", "bc"),
    ("{{with .metadata}}{{.name}}{{end}}{{with .nope}}x{{else}}y{{end}}", "weby"),
    ("{{with $m := .metadata}}{{$m.name}}{{end}}", "web"),
    ("{{$x := 1}}{{range .spec.containers}}{{$x = .name}}{{end}}{{$x}}", "b"),
    ("{{$x := 1}}{{if .kind}}{{$x := 2}}{{$x}}{{end}}{{$x}}", "21"),
    ('{{.kind | printf "%s-%s" "x" | len}}', "5"),
    ("{{and .kind .nope}} {{or .nope .kind}} {{not .nope}}", "<no value> Pod true"),
    ("{{if and .kind (not .nope)}}yes{{end}}", "yes"),
]  # fmt: skip


@pytest.mark.parametrize(("template", "text"), CASES)
def test_a_template_gives_its_text(template: str, text: str) -> None:
    assert gotemplate.render(gotemplate.parse(template), RECORD) == text


KUBECTL = shutil.which("kubectl")


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_kubectl_gives_the_same_texts(tmp_path: Path) -> None:
    (tmp_path / "pod.json").write_text(json.dumps(RECORD))
    template = "\n".join(f"{{{{if true}}}}{one}{{{{end}}}}" for one, _ in CASES)
    words = ["annotate", "--local", "-f", str(tmp_path / "pod.json"), "x-"]
    done = subprocess.run(
        [str(KUBECTL), *words, "-o", f"go-template={template}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split("\n") == [text for _, text in CASES]


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{.kind.deeper}}", "the template wants .deeper of Pod, no object"),
        ("{{$x}}", "the template has no variable $x"),
        ("{{break}}", "the template has a break outside of range"),
        ("{{.kind 1}}", "gives values to what is no function"),
        ("{{range .kind}}{{end}}", "cannot range over Pod"),
        ("{{not}}", "not cannot be called with nothing"),
        ("{{and}}", "and needs a value"),
    ],
)
def test_a_template_that_does_not_fit_says_why(template: str, why: str) -> None:
    with pytest.raises(GoTemplateError) as caught:
        gotemplate.render(gotemplate.parse(template), RECORD)
    assert why in str(caught.value)
