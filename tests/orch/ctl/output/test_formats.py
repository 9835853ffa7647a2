from __future__ import annotations

import argparse
from typing import Any

import pytest

from orch.ctl.failures import CommandFailed
from orch.ctl.output import formats

RECORD = {"metadata": {"name": "web", "labels": {"a": "b"}}, "spec": {"list": [1, True, None]}}


def _form(text: str) -> formats.Format:
    parser = argparse.ArgumentParser(exit_on_error=False)
    formats.add_to(parser, formats.OF_OBJECTS)
    form: formats.Format = parser.parse_args(["-o", text]).output
    return form


def test_no_form_is_the_command_s_own() -> None:
    parser = argparse.ArgumentParser()
    formats.add_to(parser, formats.DATA)
    form = parser.parse_args([]).output
    assert (bool(form), form.is_table, _form("wide").is_table) == (False, True, True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("jsn", "'jsn' is not a format: did you mean 'json'?: use json, yaml"),
        ("jsonpath", "jsonpath needs a template"),
        ("json=x", "json takes no value"),
        ("jsonpath={.a", "breaks off"),
        ("custom-columns=A", "'A' is not a column: write HEADER:.path.of.field"),
        ("custom-columns=A:.[", "breaks off"),
    ],
)
def test_what_is_no_form_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(argparse.ArgumentError) as caught:
        _form(text)
    assert why in str(caught.value)


@pytest.mark.parametrize("text", ["json", "yaml", "jsonpath={.metadata.name}"])
def test_data_is_shown(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    formats.show(_form(text), RECORD)
    out = capsys.readouterr().out
    assert out == "web" if text.startswith("jsonpath") else "web" in out


def test_a_template_that_does_not_fit_the_object_fails() -> None:
    with pytest.raises(CommandFailed, match=r"there is no \[9\]"):
        formats.show(_form("jsonpath={.spec.list[9]}"), RECORD)


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
    assert formats.column_rows(form, [RECORD], headers=False) == [[text]]


def test_a_form_that_only_some_commands_have_is_named_as_missing() -> None:
    parser: Any = argparse.ArgumentParser(exit_on_error=False)
    formats.add_to(parser, formats.DATA)
    with pytest.raises(argparse.ArgumentError, match="'wide' is not a format: use json, yaml"):
        parser.parse_args(["-o", "wide"])
