from __future__ import annotations

import pytest

from nodeagent.runtime.endpoint import socket_path


@pytest.mark.parametrize("endpoint", ["unix:///run/x.sock", "/run/x.sock"])
def test_an_endpoint_is_a_unix_socket(endpoint: str) -> None:
    assert socket_path(endpoint) == "/run/x.sock"


@pytest.mark.parametrize("endpoint", ["", "tcp://127.0.0.1:1", "unix://run/x.sock", "npipe:////x"])
def test_any_other_endpoint_is_refused_with_the_correct_form(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"write it as unix:///path/to/the\.sock") as refused:
        socket_path(endpoint)
    assert str(refused.value).startswith(f"{endpoint!r} is not a unix socket")
