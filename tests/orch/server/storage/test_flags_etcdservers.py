from __future__ import annotations

import pytest

from orch.server.storage.flags import parse_servers


def test_urls_with_host_and_port_are_kept() -> None:
    given = ["http://127.0.0.1:2379", "http://[::1]:2379/", "http://etcd.example:1"]
    assert parse_servers(given) == (given[0], "http://[::1]:2379", given[2])


@pytest.mark.parametrize(
    "server",
    [
        "", "etcd", "etcd:2379", "http://", "http://etcd", "http://etcd:port", "http://etcd:70000",
        "ftp://etcd:1", "http://etcd:1/v3", "http://etcd:1?x", "http://[::1:2",
    ],
)  # fmt: skip
def test_another_text_is_refused_and_named(server: str) -> None:
    with pytest.raises(ValueError, match="is not http://host:port") as caught:
        parse_servers(["http://good:1", server])
    assert repr(server) in str(caught.value)


@pytest.mark.parametrize(
    "server", ["http://u:hunter2@etcd:1", "u:hunter2@etcd", "http://u:a/hunter2@b:1"]
)
def test_credentials_in_an_address_are_refused_and_not_repeated(server: str) -> None:
    with pytest.raises(ValueError, match="contains credentials") as caught:
        parse_servers([server])
    assert "hunter2" not in str(caught.value)


def test_two_schemes_are_refused() -> None:
    with pytest.raises(ValueError, match="use one for all"):
        parse_servers(["http://a:1", "https://b:1"])
