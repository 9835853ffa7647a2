from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.component.process.daemon import SetupError
from orch.ctl import main, options
from orch.ctl.failures import CommandFailed, WrongUsage


def _args(*words: str) -> argparse.Namespace:
    _, args = main.parse(["get", *words])
    return args


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    path = str(tmp_path / "config")
    config = ClientConfig(
        "https://a:6443", ca_data=b"ca", cert_data=b"cert", key_data=b"key", token="t",
        namespace="team",
    )  # fmt: skip
    write_kubeconfig(path, config)
    return path


def test_the_kubeconfig_gives_server_and_credentials(kubeconfig: str) -> None:
    config = options.client_config(_args("--kubeconfig", kubeconfig))
    assert (config.server, config.token, config.namespace) == ("https://a:6443", "t", "team")
    assert (config.ca_data, config.cert_data, config.key_data) == (b"ca", b"cert", b"key")


def test_options_win_over_the_kubeconfig_and_empty_what_they_replace(kubeconfig: str) -> None:
    config = options.client_config(
        _args(
            "--kubeconfig", kubeconfig, "--server", "b:7443/", "--token", "other",
            "--client-certificate", "c.pem", "--client-key", "k.pem",
            "--certificate-authority", "ca.pem", "--tls-server-name", "name",
            "--insecure-skip-tls-verify",
        )
    )  # fmt: skip
    assert config == ClientConfig(
        "https://b:7443", ca_file="ca.pem", cert_file="c.pem", key_file="k.pem", token="other",
        insecure=True, tls_server_name="name", namespace="team",
    )  # fmt: skip


def test_basic_credentials_take_the_place_of_a_token(kubeconfig: str) -> None:
    words = ("--kubeconfig", kubeconfig, "--username", "ann", "--password", "secret")
    config = options.client_config(_args(*words))
    assert (config.token, config.username, config.password) == ("", "ann", "secret")


@pytest.mark.parametrize("words", [("--token", "t2"), ("--username", "ann")])
def test_who_is_named_by_options_shows_no_certificate_of_the_kubeconfig(
    kubeconfig: str, words: tuple[str, ...]
) -> None:
    config = options.client_config(_args("--kubeconfig", kubeconfig, *words))
    assert (config.cert_data, config.key_data, config.ca_data) == (b"", b"", b"ca")
    words = (*words, "--client-certificate", "c.pem", "--client-key", "k.pem")
    config = options.client_config(_args("--kubeconfig", kubeconfig, *words))
    assert (config.cert_file, config.key_file) == ("c.pem", "k.pem")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--token", "s3cret", "--username", "ann"), "--token and --username exclude each other"),
        (("--token", "s3cret", "--password", "s3cret"), "--token and --username exclude"),
        (("--password", "s3cret"), "--password needs --username"),
    ],
)
def test_credentials_that_do_not_go_together_are_refused_and_not_quoted(
    kubeconfig: str, words: tuple[str, ...], error: str
) -> None:
    with pytest.raises(WrongUsage, match=error) as refused:
        options.client_config(_args("--kubeconfig", kubeconfig, *words))
    assert "s3cret" not in str(refused.value)


def test_a_server_alone_is_enough() -> None:
    assert options.client_config(_args("-s", "http://h:1")) == ClientConfig("http://h:1")


def test_without_server_and_kubeconfig_the_error_says_where_it_looked() -> None:
    with pytest.raises(CommandFailed, match=r"~/.orch/config and ~/.kube/config"):
        options.client_config(_args())


def test_a_server_that_is_no_url_is_refused() -> None:
    with pytest.raises(WrongUsage, match="'ftp://x' is not an http"):
        options.client_config(_args("--server", "ftp://x"))


def test_the_first_existing_file_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (".orch/config", ".kube/config"):
        (tmp_path / "home" / name).parent.mkdir(parents=True)
        (tmp_path / "home" / name).touch()
    assert options.kubeconfig_paths(_args()) == [str(tmp_path / "home/.orch/config")]
    (tmp_path / "home/.orch/config").unlink()
    assert options.kubeconfig_paths(_args()) == [str(tmp_path / "home/.kube/config")]
    other = tmp_path / "other"
    other.touch()
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{other}")
    assert options.kubeconfig_paths(_args()) == [str(other)]
    assert options.kubeconfig_paths(_args("--kubeconfig", "asked")) == ["asked"]


def test_a_file_named_by_the_environment_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing")
    assert options.kubeconfig_paths(_args()) == [f"{tmp_path}/missing"]


def test_a_server_needs_no_file_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing")
    given = ("--server", "https://s", "--token", "t")
    config = options.client_config(_args(*given))
    assert (config.server, config.token) == ("https://s", "t")
    with pytest.raises(SetupError, match="asked"):
        options.client_config(_args(*given, "--kubeconfig", "asked"))
    with pytest.raises(SetupError, match="missing"):
        options.client_config(_args("--token", "t"))


def test_impersonation_becomes_headers() -> None:
    args = _args(
        "--as", "ann", "--as-group", "ops", "--as-group", "dev", "--as-uid", "7",
        "--as-user-extra", "scopes=a", "--as-user-extra", "scopes=b",
    )  # fmt: skip
    assert options.impersonation_headers(args) == [
        ("Impersonate-User", "ann"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-scopes", "a"),
        ("Impersonate-Extra-scopes", "b"),
    ]
    assert options.impersonation_headers(_args()) == []


def test_the_key_of_an_extra_value_is_written_as_a_header_may_be_named() -> None:
    args = _args("--as", "ann", "--as-user-extra", "example.org/scope%=a=b")
    assert options.impersonation_headers(args)[1:] == [
        ("Impersonate-Extra-example.org%2Fscope%25", "a=b")
    ]


def test_impersonation_needs_a_user() -> None:
    with pytest.raises(WrongUsage, match="need --as"):
        options.impersonation_headers(_args("--as-group", "ops"))


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("30", 30), ("1m30s", 90), ("500ms", 0.5)])
def test_times_are_durations_or_seconds(text: str, seconds: float) -> None:
    assert _args("--request-timeout", text).request_timeout == seconds


@pytest.mark.parametrize("words", [("--request-timeout", "soon"), ("--as-user-extra", "novalue")])
def test_malformed_values_are_usage_errors(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        _args(*words)


def test_single_entries_of_the_kubeconfig_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "clusters: [{name: a, cluster: {server: 'https://a'}},"
        " {name: b, cluster: {server: 'https://b'}}]\n"
        "users: [{name: u, user: {token: tu}}, {name: v, user: {token: tv}}]\n"
        "contexts: [{name: c, context: {cluster: a, user: u}}]\n"
        "current-context: c\n"
    )
    words = ("--kubeconfig", str(path))
    config = options.client_config(_args(*words, "--cluster", "b", "--user", "v"))
    assert (config.server, config.token) == ("https://b", "tv")
    config = options.client_config(_args(*words, "--context", "c", "--user", "v"))
    assert (config.server, config.token) == ("https://a", "tv")
