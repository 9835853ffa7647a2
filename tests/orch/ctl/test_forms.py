from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from orch.ctl import forms
from orch.ctl.failures import CommandFailed

RECORD = {"metadata": {"name": "web", "labels": {"a": "b"}}, "spec": {"list": [1, True, None]}}


def _form(text: str) -> forms.Form:
    parser = argparse.ArgumentParser(exit_on_error=False)
    forms.add_to(parser, forms.OF_OBJECTS)
    form: forms.Form = parser.parse_args(["-o", text]).output
    return form


def test_no_form_is_the_command_s_own() -> None:
    parser = argparse.ArgumentParser()
    forms.add_to(parser, forms.DATA)
    form = parser.parse_args([]).output
    assert (bool(form), form.is_table, _form("wide").is_table) == (False, True, True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("jsn", "'jsn' is no form: did you mean 'json'?: use json, yaml"),
        ("jsonpath", "jsonpath needs a template"),
        ("json=x", "json takes no value"),
        ("jsonpath={.a", "breaks off"),
        ("custom-columns=A", "'A' is no column: write HEADER:.path.of.field"),
        ("custom-columns=A:.[", "breaks off"),
        ("go-template={{.x", "breaks off"),
        ("go-template", "go-template needs a template"),
        ("jsonpath-file=/nonexistent", "cannot read /nonexistent: No such file or directory"),
    ],
)
def test_what_is_no_form_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(argparse.ArgumentError) as caught:
        _form(text)
    assert why in str(caught.value)


@pytest.mark.parametrize("text", ["json", "yaml", "jsonpath={.metadata.name}"])
def test_data_is_shown(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    forms.show(_form(text), RECORD)
    out = capsys.readouterr().out
    assert out == "web" if text.startswith("jsonpath") else "web" in out


def test_a_template_may_come_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t").write_text("{.metadata.name}!\n")
    forms.show(_form(f"jsonpath-file={tmp_path / 't'}"), RECORD)
    assert capsys.readouterr().out == "web!"


def test_a_go_template_is_shown_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t").write_text("{{.metadata.name}}!\n")
    for text in ("go-template={{.metadata.name}}!\n", f"go-template-file={tmp_path / 't'}",
                 f"templatefile={tmp_path / 't'}"):  # fmt: skip
        forms.show(_form(text), RECORD)
        assert capsys.readouterr().out == "web!\n"
    with pytest.raises(CommandFailed, match="len: <nil> has no length"):
        forms.show(_form("template={{len .x}}"), RECORD)


def test_found_values_may_be_given_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    forms.show(_form("jsonpath-as-json={.spec.list[*]}"), RECORD)
    assert json.loads(capsys.readouterr().out) == [1, True, None]


def test_a_template_that_does_not_fit_the_object_fails() -> None:
    with pytest.raises(CommandFailed, match=r"there is no \[9\]"):
        forms.show(_form("jsonpath={.spec.list[9]}"), RECORD)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".metadata.name", "web"),
        ("metadata.name", "web"),
        (".nothing", "<none>"),
        (".spec.list[9]", "<none>"),
        (".spec.list[*]", "1,true,<nil>"),
        (".spec.list", "[1 true <nil>]"),
        (".metadata.labels", "map[a:b]"),
    ],
)
def test_columns_are_written_as_go_does(path: str, text: str) -> None:
    form = _form(f"custom-columns=HEAD:{path}")
    assert form.columns[0][0] == "HEAD"
    assert forms.column_rows(form, [RECORD]) == [[text]]


def test_columns_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "columns").write_text("NAME  LABEL\n.metadata.name .metadata.labels.a\n")
    form = _form(f"custom-columns-file={tmp_path / 'columns'}")
    assert [name for name, _ in form.columns] == ["NAME", "LABEL"]
    assert forms.column_rows(form, [RECORD]) == [["web", "b"]]
    (tmp_path / "columns").write_text("NAME LABEL\n.metadata.name\n")
    with pytest.raises(argparse.ArgumentError, match="2 headers and 1 paths"):
        _form(f"custom-columns-file={tmp_path / 'columns'}")


def test_a_form_that_only_some_commands_have_is_named_as_missing() -> None:
    parser: Any = argparse.ArgumentParser(exit_on_error=False)
    forms.add_to(parser, forms.DATA)
    with pytest.raises(argparse.ArgumentError, match="'wide' is no form: use json, yaml"):
        parser.parse_args(["-o", "wide"])
