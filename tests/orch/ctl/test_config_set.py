from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.orch.ctl.conftest import Result, run_command

BEGUN = """
apiVersion: v1
kind: Config
clusters: [{name: lab.one, cluster: {server: 'https://a', extra: kept}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: lab.one, user: u}}]
current-context: c
preferences: {colors: true}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(BEGUN)
    return path


def _config(file: Path, *words: str) -> Result:
    return run_command("config", *words, "--kubeconfig", str(file))


def _data(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


@pytest.mark.parametrize(
    ("words", "section", "entry"),
    [
        (("set-cluster", "lab.one", "--server", "https://b"), "clusters",
         {"name": "lab.one", "cluster": {"server": "https://b", "extra": "kept"}}),
        (("set-cluster", "new", "--server", "https://b", "--insecure-skip-tls-verify"), "clusters",
         {"name": "new", "cluster": {"server": "https://b", "insecure-skip-tls-verify": True}}),
        (("set-credentials", "u", "--username", "n", "--password", "p"), "users",
         {"name": "u", "user": {"username": "n", "password": "p"}}),
        (("set", "clusters.lab.one.certificate-authority-data", "ca", "--set-raw-bytes"),
         "clusters", {"name": "lab.one", "cluster": {"server": "https://a", "extra": "kept",
                                                     "certificate-authority-data": "Y2E="}}),
        (("set-context", "c", "--namespace", "shop"), "contexts",
         {"name": "c", "context": {"cluster": "lab.one", "user": "u", "namespace": "shop"}}),
        (("set-context", "--current", "--user", "v"), "contexts",
         {"name": "c", "context": {"cluster": "lab.one", "user": "v"}}),
        (("set", "clusters.lab.one.tls-server-name", "x"), "clusters",
         {"name": "lab.one",
          "cluster": {"server": "https://a", "extra": "kept", "tls-server-name": "x"}}),
        (("set", "clusters.n.insecure-skip-tls-verify", "true"), "clusters",
         {"name": "n", "cluster": {"insecure-skip-tls-verify": True}}),
        (("unset", "users.u.token"), "users", {"name": "u", "user": {}}),
    ],
)  # fmt: skip
def test_an_entry_is_made_or_changed_and_the_rest_kept(
    file: Path, words: tuple[str, ...], section: str, entry: dict[str, Any]
) -> None:
    before = _data(file)
    result = _config(file, *words)
    assert (result.code, result.err) == (0, "")
    after = _data(file)
    assert entry in after[section]
    for name in {*before} - {section}:
        assert after[name] == before[name]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_is_not_there_is_begun(tmp_path: Path) -> None:
    file = tmp_path / "new" / "config"
    assert _config(file, "set-cluster", "a", "--server", "https://a").out == 'Cluster "a" set.\n'
    assert _config(file, "set-context", "c", "--cluster", "a").out == 'Context "c" created.\n'
    assert _config(file, "set", "current-context", "c").code == 0
    assert _config(file, "current-context").out == "c\n"
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_files_are_named_by_their_whole_path_or_kept_inside(file: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("pem")
    words = ("set-cluster", "lab.one", "--certificate-authority", str(tmp_path / "ca.crt"))
    assert _config(file, *words).code == 0
    cluster = _data(file)["clusters"][0]["cluster"]
    assert cluster["certificate-authority"] == str(tmp_path / "ca.crt")
    assert _config(file, *words, "--embed-certs").code == 0
    cluster = _data(file)["clusters"][0]["cluster"]
    assert cluster["certificate-authority-data"] == "cGVt"
    assert "certificate-authority" not in cluster


def test_a_server_is_verified_or_not_but_never_both(file: Path) -> None:
    cluster = ("set-cluster", "n")
    _config(file, *cluster, "--certificate-authority", "/ca")
    assert _data(file)["clusters"][1]["cluster"] == {"certificate-authority": "/ca"}
    _config(file, *cluster, "--insecure-skip-tls-verify")
    assert _data(file)["clusters"][1]["cluster"] == {"insecure-skip-tls-verify": True}
    _config(file, *cluster, "--insecure-skip-tls-verify=false")
    assert _data(file)["clusters"][1]["cluster"] == {}


def test_a_token_takes_the_place_of_a_password(file: Path) -> None:
    _config(file, "set-credentials", "n", "--username", "a", "--password", "b")
    _config(file, "set-credentials", "n", "--token", "t")
    assert _data(file)["users"][1]["user"] == {"token": "t"}


def test_a_link_to_the_file_stays_one(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    assert _config(tmp_path / "link", "set", "contexts.c.namespace", "x").code == 0
    assert (tmp_path / "link").is_symlink()
    assert _data(file)["contexts"][0]["context"]["namespace"] == "x"


def test_whole_entries_and_the_current_context_are_unset(file: Path) -> None:
    assert _config(file, "unset", "users.u").code == 0
    assert _config(file, "unset", "current-context").code == 0
    assert _config(file, "unset", "contexts").code == 0
    assert (_data(file)["users"], _data(file)["contexts"]) == ([], [])
    assert "current-context" not in _data(file)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("set", "clustrs.a.server", "x"), 2, "'clustrs.a.server' is no property: it begins with"),
        (("set", "clusters.a", "x"), 2, "'clusters.a' names no field: write clusters.a.field"),
        (("unset", "users.w"), 1, "the kubeconfig has no user 'w'"),
        (("set-context",), 2, "say which context: either NAME or --current"),
        (("set-context", "c", "--current"), 2, "say which context"),
        (("set-credentials", "u", "--token", "a", "--username", "b"), 2, "exclude each other"),
        (("set", "clusters.a.sever", "x"), 2, "clusters have no field 'sever': did you mean"),
        (("set", "clusters.a.insecure-skip-tls-verify", "1"), 2, "is true or false, not '1'"),
        (("set", "users.u.client-key-data", "!"), 2, "client-key-data is base64: encode it"),
        (("set-cluster", "a", "--insecure-skip-tls-verify", "--certificate-authority", "/x"), 2,
         "exclude each other"),
        (("set-cluster", "a", "--certificate-authority", "/no", "--embed-certs"), 1,
         "cannot read /no: No such file"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_changes_nothing(
    file: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    result = _config(file, *words)
    assert (result.code, result.err.count("\n")) == (code, 1)
    assert text in result.err
    assert file.read_text() == BEGUN


def test_a_file_that_is_no_kubeconfig_is_left_alone(file: Path) -> None:
    file.write_text("- a list\n")
    assert "is not a mapping" in _config(file, "set", "users.a.token", "x").err
    assert file.read_text() == "- a list\n"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    result = _config(tmp_path / "plain" / "config", "set", "users.a.token", "x")
    assert (result.code, "cannot write the kubeconfig" in result.err) == (1, True)
