"""Mistakes of an operator at three in the morning: one line each, that says what to do."""

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
        ("apiVersion: v1\nkind: Podd\nmetadata: {name: x}\n",
         "FILE:1: the server has no kind 'Podd' in 'v1': did you mean 'Pod'?"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containrs: []}\n",
         'unknown field "spec.containrs"'),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: X_y}\nspec: {containers: []}\n",
         'Pod "X_y" is invalid: '),
    ],
)  # fmt: skip
def test_a_wrong_file(server: ApiServer, tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "object.yaml"
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
        f"error: cannot reach {address}: connection refused; check that the server runs and that "
        "--server or the kubeconfig has its address\n"
    )


def test_a_certificate_that_does_not_fit(server: ApiServer, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "pki", now=datetime.now(UTC))
    told = line("get", "pods", *as_admin(server), "--certificate-authority", stranger.ca_file)
    assert "certificate verify failed" in told
    assert "set its authority with --certificate-authority" in told
    told = line("get", "pods", *as_admin(server), "--tls-server-name", "elsewhere.example")
    assert "certificate verify failed" in told
    assert "its name with --tls-server-name" in told
    pair = stranger.issue(Subject("me", "me", ()))
    told = line("get", "pods", *as_admin(server), "--client-certificate", pair.cert_file)
    assert "cannot use the client certificate" in told
    words = ("--client-certificate", pair.cert_file, "--client-key", pair.key_file)
    told = line("get", "pods", *as_admin(server), *words)
    assert "cannot reach https://" in told
    assert "refuses the client certificate: the server does not know its authority" in told
    assert "choose another: in the kubeconfig, or with --client-certificate" in told


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
        (("get", "pdos"), 1, "did you mean 'pods'?"),
        (("get", "namespace", "orch-systme"), 1, "did you mean 'orch-system'?"),
        (("describe", "ns/defualt"), 1, "did you mean 'default'?"),
        (("delete", "ns", "defalt"), 1, "did you mean 'default'?"),
        (("get", "pods", "--context", "cc"), 1, "did you mean 'c'?"),
        (("get", "pods", "--user", "v"), 1, "users has no entry named 'v': it has u"),
        (("create", "token", "defalt"), 1, "did you mean 'default'?"),
        (("node", "summary", "worker"), 1, "did you mean 'worker-1'?"),
        (("checkpoint", "list", "worker"), 1, "did you mean 'worker-1'?"),
        (("cordon", "worker"), 1, "did you mean 'worker-1'?"),
        (("patch", "node", "worker", "-p", "{}"), 1, "did you mean 'worker-1'?"),
        (("config", "use-context", "C1"), 1, "the kubeconfig has no context 'C1': there are c"),
    ],
)
def test_a_name_that_is_nearly_right(
    server: ApiServer, words: tuple[str, ...], code: int, meant: str
) -> None:
    assert meant in line(*words, *as_admin(server), code=code)
