"""What an operator gets wrong at three in the morning: one line each, that says what to do."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orch.component.pki import Authority, Subject
from tests.e2e.apiserver import ApiServer, running, write_kubeconfig
from tests.orch.ctl.conftest import run_command


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("apiserver")) as server:
        path = server.directory / "node.json"
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}}
        path.write_text(json.dumps(node))
        assert run_command("create", "-f", str(path), *as_admin(server)).code == 0
        yield server


def line(*words: str, code: int = 1) -> str:
    """The one line a failing command prints."""
    result = run_command(*words)
    assert (result.code, result.out) == (code, ""), result
    assert result.err.count("\n") == 1, result.err
    return result.err


def as_admin(server: ApiServer) -> tuple[str, str]:
    return "--kubeconfig", str(server.directory / "kubeconfig")


def user(server: ApiServer, name: str, *, authority: Authority | None = None) -> tuple[str, str]:
    """A kubeconfig of a user nobody has granted anything."""
    made = authority or Authority(server.directory / "pki", now=datetime.now(UTC))
    pair = made.issue(Subject(name, name, ("visitors",)))
    path = server.directory / f"{name}.kubeconfig"
    write_kubeconfig(path, server.port, str(server.directory / "pki" / "ca.crt"), pair)
    return "--kubeconfig", str(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read FILE: No such file or directory"),
        ("", "FILE: there is no object in it: name another file"),
        ("kind: Pod\n", "FILE:1: apiVersion is missing: set it"),
        ("a: [1\n", "FILE:2: did not find expected"),
        ('{"kind": }', "FILE:1: this is not JSON"),
        ("apiVersion: v1\nkind: Pod\n---\n- x\n", "FILE:4: an object is a mapping"),
        ("apiVersion: v1\nkind: Podd\nmetadata: {name: x}\n",
         "FILE:1: the server has no kind 'Podd' in 'v1': did you mean 'Pod'?"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containrs: []}\n",
         'unknown field "spec.containrs"'),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: X_y}\nspec: {containers: []}\n",
         'Pod "X_y" is invalid: '),
    ],
)  # fmt: skip
def test_a_wrong_file(server: ApiServer, tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "object.yaml"
    if content is not None:
        path.write_text(content)
    told = line("create", "-f", str(path), *as_admin(server))
    assert told.startswith("error: ")
    assert said.replace("FILE", str(path)) in told


def test_a_server_that_is_down() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"https://127.0.0.1:{unused.getsockname()[1]}"
        told = line("get", "pods", "-s", address)
    assert told == (
        f"error: cannot reach {address}: connection refused; see that the server runs and that "
        "--server or the kubeconfig names it\n"
    )


def test_a_server_that_does_not_answer() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        told = line("get", "pods", "-s", address, "--request-timeout", "200ms")
    assert "did not answer within 0.2 s; try again with a longer --request-timeout" in told


def test_a_name_that_does_not_resolve() -> None:
    told = line("get", "pods", "-s", "https://no-such-host.invalid")
    assert "the host name does not resolve" in told


def test_a_certificate_that_does_not_fit(server: ApiServer, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "pki", now=datetime.now(UTC))
    told = line("get", "pods", *as_admin(server), "--certificate-authority", stranger.ca_file)
    assert "certificate verify failed" in told
    assert "name its authority with --certificate-authority" in told
    told = line("get", "pods", *as_admin(server), "--tls-server-name", "elsewhere.example")
    assert "certificate verify failed" in told
    assert "its name with --tls-server-name" in told
    pair = stranger.issue(Subject("me", "me", ()))
    told = line("get", "pods", *as_admin(server), "--client-certificate", pair.cert_file)
    assert "cannot use the client certificate" in told
    words = ("--client-certificate", pair.cert_file, "--client-key", pair.key_file)
    told = line("get", "pods", *as_admin(server), *words)
    assert "cannot reach https://" in told
    assert "if a client certificate is shown, see that the server trusts its authority" in told


def test_no_permission(server: ApiServer) -> None:
    told = line("get", "pods", *user(server, "jane"))
    assert 'pods is forbidden: User "jane" cannot list resource "pods"' in told
    assert told.endswith("(Forbidden); ask an administrator for a role that allows it\n")
    result = run_command("auth", "can-i", "list", "pods", *user(server, "jane"))
    assert (result.code, result.out.split()[0]) == (1, "no")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("get", "node", "worker-1"), 'cannot get resource "nodes"'),
        (("create", "ns", "x"), 'cannot create resource "namespaces"'),
        (("delete", "ns", "default"), 'cannot delete resource "namespaces"'),
        (("cordon", "worker-1"), 'cannot get resource "nodes"'),
        (("logs", "x"), 'cannot get resource "pods"'),
        (("create", "token", "default"), 'cannot create resource "serviceaccounts/token"'),
        (("node", "summary", "worker-1"), 'cannot get resource "nodes/proxy"'),
    ],
)
def test_what_is_not_allowed_is_named(server: ApiServer, words: tuple[str, ...], what: str) -> None:
    told = line(*words, *user(server, "jane"))
    assert what in told
    assert told.endswith("(Forbidden); ask an administrator for a role that allows it\n")


def test_no_credentials(server: ApiServer) -> None:
    authority = str(server.directory / "pki" / "ca.crt")
    words = ("-s", f"https://127.0.0.1:{server.port}", "--certificate-authority", authority)
    told = line("get", "pods", *words, "--token", "unknown")
    assert told.startswith("error: Unauthorized; check the credentials in the kubeconfig or the")


@pytest.mark.parametrize(
    ("words", "code", "meant"),
    [
        (("gte", "pods"), 2, "did you mean 'get'?"),
        (("get", "pdos"), 1, "did you mean 'pods'?"),
        (("get", "pods", "--slector=x"), 2, "did you mean '--selector'?"),
        (("get", "pods", "-o", "ymal"), 2, "did you mean 'yaml'?"),
        (("get", "namespace", "orch-systme"), 1, "did you mean 'orch-system'?"),
        (("describe", "ns/defualt"), 1, "did you mean 'default'?"),
        (("delete", "ns", "defalt"), 1, "did you mean 'default'?"),
        (("get", "pods", "--context", "cc"), 1, "did you mean 'c'?"),
        (("get", "pods", "--user", "v"), 1, "users has no entry named 'v': it has u"),
        (("create", "namspace", "x"), 2, "did you mean 'namespace'?"),
        (("create", "token", "defalt"), 1, "did you mean 'default'?"),
        (("node", "sumary", "worker-1"), 2, "did you mean 'summary'?"),
        (("node", "summary", "worker"), 1, "did you mean 'worker-1'?"),
        (("checkpoint", "list", "worker"), 1, "did you mean 'worker-1'?"),
        (("cordon", "worker"), 1, "did you mean 'worker-1'?"),
        (("patch", "node", "worker", "-p", "{}"), 1, "did you mean 'worker-1'?"),
        (("patch", "node", "worker-1", "--type", "stategic", "-p", "{}"), 2, "'strategic'?"),
        (("whoami",), 2, "did you mean 'auth whoami'?"),
        (("config", "use-context", "C1"), 1, "the kubeconfig has no context 'C1': there are c"),
        (("taint", "node", "x", "a=b:NoSchedul"), 2, "did you mean 'NoSchedule'?"),
        (("man", "aply"), 2, "did you mean 'apply'?"),
    ],
)
def test_a_name_that_is_nearly_right(
    server: ApiServer, words: tuple[str, ...], code: int, meant: str
) -> None:
    assert meant in line(*words, *as_admin(server), code=code)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [", "the kubeconfig does not parse: "),
        ("[]", "is not a mapping with clusters, users and contexts"),
        ("contexts: []\ncurrent-context: x", "contexts has no entry named 'x'"),
        ("{}", "current-context is empty and no context was named"),
    ],
)
def test_a_kubeconfig_that_is_none(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "config").write_text(content)
    assert said in line("get", "pods", "--kubeconfig", str(tmp_path / "config"))


def test_no_kubeconfig_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    told = line("get", "pods")
    assert told.startswith("error: there is no kubeconfig: name one with --kubeconfig or")
    assert "or a server with --server" in told


def test_a_wrong_patch(server: ApiServer, tmp_path: Path) -> None:
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    (tmp_path / "m.json").write_text(json.dumps(made))
    assert run_command("create", "-f", str(tmp_path / "m.json"), *as_admin(server)).code == 0
    words = ("patch", "cm", "m", *as_admin(server))
    assert "neither JSON nor YAML" in line(*words, "-p", "{a: [")
    operation = '[{"op":"remove","path":"/data/x"}]'
    assert "there is no 'data'" in line(*words, "--type=json", "-p", operation)
    assert "(Invalid)" in line(*words, "--type=merge", "-p", '{"data":{"/":"x"}}')
