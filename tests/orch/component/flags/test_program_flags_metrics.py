"""The flags of metrics and what they make of the policy."""

import argparse
from pathlib import Path

import pytest

from orch.component.flags import program_flags
from orch.component.flags.stability import CURRENT, MetricPolicy

PREVIOUS = f"{CURRENT.major}.{CURRENT.minor - 1}"


def policy(*argv: str) -> MetricPolicy:
    parser = argparse.ArgumentParser(exit_on_error=False)
    program_flags.add_metric_flags(parser)
    return program_flags.policy_of(parser.parse_args(argv))


def test_without_flags_nothing_is_withheld_or_bounded() -> None:
    assert policy() == MetricPolicy()


def test_every_flag_reaches_the_policy() -> None:
    found = policy(
        "--disabled-metrics=a,b, c",
        f"--show-hidden-metrics-for-version={PREVIOUS}",
        "--allow-metric-labels=m,l=x,y",
        "--allow-metric-labels=m,k=z",
    )
    assert found.disabled == {"a", "b", "c"}
    assert found.show_hidden
    assert found.allowed == {"m": {"l": frozenset("xy"), "k": frozenset("z")}}


WRONG = [
    ("--show-hidden-metrics-for-version=1.2", f"only {PREVIOUS} can be given"),
    ("--allow-metric-labels=m,l", "is not METRIC,LABEL=VALUE"),
    ("--allow-metric-labels=m=x", "'m' is not METRIC,LABEL"),
]


@pytest.mark.parametrize(("flag", "message"), WRONG)
def test_a_flag_that_does_not_fit_is_refused(flag: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=message):
        policy(flag)


def test_a_manifest_counts_only_without_the_flag(tmp_path: Path) -> None:
    path = tmp_path / "labels.yaml"
    path.write_text("'m,l': x,y\n")
    manifest = f"--allow-metric-labels-manifest={path}"
    assert policy(manifest).allowed == {"m": {"l": frozenset("xy")}}
    assert policy(manifest, "--allow-metric-labels=n,l=z").allowed == {"n": {"l": frozenset("z")}}


@pytest.mark.parametrize("content", [None, "- a\n", "'m,l': [x]\n", "m: x\n", "'m,l': [\n"])
def test_a_manifest_that_cannot_be_used_is_logged_and_ignored(
    tmp_path: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "labels.yaml"
    if content is not None:
        path.write_text(content)
    assert policy(f"--allow-metric-labels-manifest={path}").allowed == {}
    assert f"ignoring the manifest of metric labels {path}" in caplog.text
