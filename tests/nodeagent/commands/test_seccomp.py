"""`nodeagent seccomp`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodeagent.commands.dispatch import dispatch
from nodeagent.profiles.file import MAX_PROFILE_BYTES

GOOD = {"defaultAction": "SCMP_ACT_ALLOW"}
BAD = {"defaultAction": "SCMP_ACT_ERRNO"}


def write(path: Path, value: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return str(path)


def test_lint_prints_valid_files_and_the_problems_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = write(tmp_path / "good.json", GOOD), write(tmp_path / "bad.json", BAD)

    assert dispatch(["seccomp", "lint", good]) == 0
    assert capsys.readouterr().out == f"{good}: fine\n"
    assert dispatch(["seccomp", "lint", good, bad, str(tmp_path / "absent")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{good}: fine"
    assert lines[1].startswith(f"{bad}: error: it denies everything")
    assert lines[2] == f"{tmp_path}/absent: error: it cannot be read: No such file or directory"


def test_lint_prints_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = write(tmp_path / "good.json", GOOD), write(tmp_path / "bad.json", BAD)

    assert dispatch(["seccomp", "lint", "-o", "json", good, bad]) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert first == {"file": good, "valid": True, "problems": []}
    assert (second["file"], second["valid"]) == (bad, False)
    assert [problem["level"] for problem in second["problems"]] == ["error"]


def test_a_warning_is_shown_and_not_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = {"names": ["mkdir"], "action": "SCMP_ACT_ERRNO"}
    path = write(tmp_path / "p.json", {**GOOD, "syscalls": [rule]})

    assert dispatch(["seccomp", "lint", "--arch", "aarch64", path]) == 0
    assert "warning: syscalls[0].names[0]: aarch64 has no" in capsys.readouterr().out


def test_a_file_that_the_agent_would_refuse_for_its_size_is_not_read_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as huge:
        huge.truncate(MAX_PROFILE_BYTES * 100)

    assert dispatch(["seccomp", "lint", str(path)]) == 1
    assert "which the agent refuses" in capsys.readouterr().out


def manifest(tmp_path: Path, **spec: Any) -> str:
    """A pod's manifest; YAML takes JSON."""
    containers = [{"name": "app", "image": "i"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    return write(tmp_path / "pod.yaml", {**pod, "spec": {"containers": containers, **spec}})


def container(name: str, profile: Any = None, **context: Any) -> dict[str, Any]:
    if profile:
        context["seccompProfile"] = profile
    return {"name": name, "image": "i", "securityContext": context}


LOCAL = {"type": "Localhost", "localhostProfile": "team/web.json"}


def test_resolve_prints_the_profile_of_every_container_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "root" / "seccomp" / "team" / "web.json", GOOD)
    path = manifest(
        tmp_path,
        securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
        initContainers=[container("init", LOCAL)],
        containers=[container("app"), container("root", privileged=True)],
        ephemeralContainers=[container("debug", {"type": "Unconfined"})],
    )
    root = ["--root-dir", str(tmp_path / "root")]

    assert dispatch(["seccomp", "resolve", path, "-o", "json", *root]) == 0
    printed = capsys.readouterr()
    own = "securityContext.seccompProfile"
    assert json.loads(printed.out) == [
        {"container": "init", "type": "Localhost", "localhostProfile": "team/web.json",
         "source": f"spec.initContainers[0].{own}"},
        {"container": "app", "type": "RuntimeDefault", "localhostProfile": None,
         "source": f"spec.{own}"},
        {"container": "root", "type": "Unconfined", "localhostProfile": None,
         "source": "spec.containers[1].securityContext.privileged"},
        {"container": "debug", "type": "Unconfined", "localhostProfile": None,
         "source": f"spec.ephemeralContainers[0].{own}"},
    ]  # fmt: skip
    assert printed.err == ""
    assert dispatch(["seccomp", "resolve", path, *root]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["CONTAINER", "TYPE", "PROFILE", "SET", "BY"]
    assert lines[1].split()[:3] == ["init", "Localhost", "team/web.json"]


@pytest.mark.parametrize(
    ("flags", "kind", "source"),
    [
        ([], "Unconfined", "default"),
        (["--seccomp-default=true"], "RuntimeDefault", "seccompDefault"),
    ],
)
def test_without_a_profile_the_agents_default_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], kind: str, source: str
) -> None:
    assert dispatch(["seccomp", "resolve", manifest(tmp_path), "-o", "json", *flags]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["type"], row["source"]) == (kind, source)


@pytest.mark.parametrize(
    ("profile", "told"),
    [
        ({"type": "Localhost"}, "localhostProfile must be set"),
        ({"type": "Localhost", "localhostProfile": "../x"}, "must not contain '..'"),
        ({"type": "Localhost", "localhostProfile": "/x"}, "must be a relative path"),
        ({"type": "unconfined"}, "seccompProfile type 'unconfined' is unknown"),
    ],
)
def test_a_profile_that_can_never_be_applied_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], profile: dict[str, str], told: str
) -> None:
    path = manifest(tmp_path, containers=[container("bad", profile), container("good")])

    assert dispatch(["seccomp", "resolve", path, "-o", "json"]) == 1
    printed = capsys.readouterr()
    assert told in printed.err
    assert "spec.containers[0].securityContext.seccompProfile" in printed.err
    assert [row["container"] for row in json.loads(printed.out)] == ["good"]


def test_a_file_that_may_still_come_and_a_profile_without_effect_are_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(
        tmp_path, containers=[container("a", LOCAL), container("b", LOCAL, privileged=True)]
    )

    assert dispatch(["seccomp", "resolve", path, "--root-dir", str(tmp_path)]) == 0
    told = capsys.readouterr().err
    assert f"{tmp_path}/seccomp/team/web.json: No such file" in told
    assert "spec.containers[1]: it is privileged, so its seccompProfile has no effect" in told


@pytest.mark.parametrize("text", ["", "kind: Pod", "{", "apiVersion: v1\nkind: Node\n"])
def test_a_file_without_a_pod_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(text)

    assert dispatch(["seccomp", "resolve", str(path)]) == 1
    assert capsys.readouterr().err.startswith("nodeagent seccomp: error: ")
    assert dispatch(["seccomp", "resolve", str(tmp_path / "absent")]) == 1
    assert "No such file" in capsys.readouterr().err
