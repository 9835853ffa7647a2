from __future__ import annotations

import pytest

from orch.ctl import gotemplate_syntax
from orch.ctl.gotemplate_syntax import Block, Chain, Constant, Function, GoTemplateError, Pipe, Text


def test_a_template_is_read_into_its_parts() -> None:
    read = gotemplate_syntax.parse(
        'x {{- range $k, $v := .a.b}}{{len $v | f "}}"}}{{end}}', ["len", "f"]
    )
    inner = Pipe(((Function("len"), Chain("$v")), (Function("f"), Constant("}}"))))
    pipe = Pipe(((Chain("", ("a", "b")),),), ("$k", "$v"), declares=True)
    assert read == (Text("x"), Block("range", pipe, (inner,)))


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("a {{.kind", "the template breaks off: '{{.kind' is not closed"),
        ("{{if .x}}", "the template breaks off: {{if}} has no {{end}}"),
        ("{{end}}", "the template has {{end}} without a beginning"),
        ("{{else}}", "the template has {{else}} without a beginning"),
        ("{{if .x}}{{else}}{{else}}{{end}}", "{{if}} has no {{end}}"),
        ("{{lenn .x}}", "calls 'lenn', which is no function: did you mean 'len'?"),
        ("{{}}", "with nothing to show"),
        ("{{.x | }}", "with nothing to show"),
        ("{{(.x}}", "a bracket that is not closed"),
        ("{{.x)}}", "an unexpected ')'"),
        ("{{if .x}}{{end .y}}", "an unexpected '.y'"),
        ("{{'a'}}", '"\'" where nothing like it may stand'),
        ('{{"\\q\\x"}}', "which is no text"),
        ("{{if .a}}" * 5000, "nested too deeply"),
    ],
)
def test_a_broken_template_says_where(template: str, why: str) -> None:
    with pytest.raises(GoTemplateError) as caught:
        gotemplate_syntax.parse(template, ["len"])
    assert why in str(caught.value)
