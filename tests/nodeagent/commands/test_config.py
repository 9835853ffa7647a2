"""`nodeagent config`: what it prints and its exit codes."""

import json
from pathlib import Path

import pytest

from nodeagent.commands.dispatch import dispatch

HEAD = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"


@pytest.fixture
def main_file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + "port: 9090\n")
    return path


def test_view_shows_files_and_flags_together(
    main_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "10.conf").write_text(HEAD + "port: 9091\nmaxPods: 7\n")
    flags = ["--config", str(main_file), "--config-dir", str(tmp_path / "d"), "--max-pods", "8"]
    assert dispatch(["config", "view", "-o", "json", *flags]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["port"], record["maxPods"], record["healthzPort"]) == (9091, 8, 10248)
    assert dispatch(["config", "view", "--origin", *flags]) == 0
    out = capsys.readouterr().out
    assert f"# {tmp_path}/d/10.conf:3" in out
    assert "# flag --max-pods" in out


def test_validate_prints_which_files_were_read(
    main_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatch(["config", "validate", "--config", str(main_file), "--port", "1"]) == 0
    assert capsys.readouterr().out == "valid: the main file, 0 drop-ins, 1 flag\n"
    assert dispatch(["config", "validate", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"valid": True, "problems": [], "warnings": []}


@pytest.mark.parametrize("action", ["view", "validate"])
def test_a_bad_configuration_names_every_mistake_and_exits_1(
    main_file: Path, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main_file.write_text(HEAD + "prot: 1\nmaxPods: 0\n")
    assert dispatch(["config", action, "--config", str(main_file)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0] == (
        f"nodeagent config: error: {main_file}:4: maxPods: must be greater than or equal to 1"
    )
    assert f"{main_file}:3: prot: there is no such field" in captured.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "shutdownGracePeriod: 1s\nshutdownGracePeriodCriticalPods: 2s\n",
            ":4: shutdownGracePeriodCriticalPods (2s) must not exceed shutdownGracePeriod (1s)",
        ),
        (
            "shutdownGracePeriod: 1s\nshutdownGracePeriodByPodPriority:\n"
            "- {priority: 1, shutdownGracePeriodSeconds: 4}\n",
            ":4: shutdownGracePeriodByPodPriority excludes shutdownGracePeriod",
        ),
        (
            "tlsCipherSuites: [TLS_NULL]\n",
            ":3: tlsCipherSuites: the TLS cipher suite 'TLS_NULL' is",
        ),
    ],
)
def test_a_configuration_that_the_agent_refuses_at_start_is_invalid(
    text: str, problem: str, main_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main_file.write_text(HEAD + text)
    assert dispatch(["config", "validate", "--config", str(main_file)]) == 1
    assert f"nodeagent config: error: {main_file}{problem}" in capsys.readouterr().err


def test_problems_are_printed_as_json(main_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main_file.write_text(HEAD + "featureGates: {NodeAgentPSI: true, Contain: true}\n")
    assert dispatch(["config", "validate", "-o", "json", "--config", str(main_file)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["valid"] is False
    assert len(report["problems"]) == 1
    assert report["problems"][0].startswith(
        f"{main_file}:3: featureGates: there is no feature gate Contain; did you mean"
    )


def test_a_gate_is_held_against_the_release_that_is_emulated(
    main_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main_file.write_text(HEAD + "featureGates: {NodeDeclaredFeatures: true}\n")
    command = ["config", "validate", f"--config={main_file}"]
    assert dispatch(command) == 0
    assert dispatch([*command, "--emulated-version=1.34"]) == 1
    assert (
        f"{main_file}:3: featureGates: the feature NodeDeclaredFeatures does not exist in 1.34"
        in (capsys.readouterr().err)
    )


def test_validate_on_this_host_also_looks_for_what_is_named(
    main_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main_file.write_text(HEAD + "tlsCertFile: absent.crt\ntlsPrivateKeyFile: absent.key\n")
    flags = [
        f"--config={main_file}",
        "--container-runtime-endpoint=",
        f"--root-dir={tmp_path}/root",
        f"--lock-file={tmp_path}/lock",
        f"--pod-manifest-path={tmp_path}/pods",
    ]
    assert dispatch(["config", "validate", *flags]) == 0
    capsys.readouterr()
    assert dispatch(["config", "validate", "--host", *flags]) == 1
    err = capsys.readouterr().err
    assert f"error: certificate serving: {tmp_path}/absent.crt: No such file" in err
    assert f"warning: static pods: {tmp_path}/pods does not exist" in err
    assert dispatch(["config", "validate", "--host", "-o", "json", *flags]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["problems"][0].startswith("certificate serving")
    assert report["warnings"][0].startswith("static pods")
