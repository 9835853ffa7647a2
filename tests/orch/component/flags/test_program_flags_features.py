"""--feature-gates, as every daemon reads it."""

from __future__ import annotations

import argparse

import pytest

from orch.component.flags import program_flags
from orch.component.flags.features import Features
from orch.component.process.daemon import SetupError


def parse(*words: str) -> Features:
    parser = argparse.ArgumentParser(prog="x")
    program_flags.add_version_flags(parser, "x")
    program_flags.add_feature_flags(parser)
    return program_flags.features_of(parser.parse_args(words))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("A=true,B=false", {"A": True, "B": False}),
        (" A = True , B=0,", {"A": True, "B": False}),
        ("A=1,A=FALSE", {"A": False}),
    ],
)
def test_gates_are_pairs_of_a_name_and_true_or_false(text: str, expected: dict[str, bool]) -> None:
    assert program_flags.gates(text) == expected


@pytest.mark.parametrize("pair", ["A", "A=", "A=yes", "=B"])
def test_another_pair_is_wrong_usage_and_named(
    pair: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(f"--feature-gates=ComponentFlagz=true,{pair}")
    assert f"{pair!r} is not NAME=true or NAME=false" in capsys.readouterr().err


def test_gates_are_those_of_the_emulated_release() -> None:
    assert parse("--feature-gates=ComponentFlagz=true").enabled("ComponentFlagz")
    assert not parse().enabled("ComponentFlagz")
    with pytest.raises(SetupError, match="--feature-gates: the feature NodeAgentPSITriggers"):
        parse("--emulated-version=1.34", "--feature-gates=NodeAgentPSITriggers=true")
