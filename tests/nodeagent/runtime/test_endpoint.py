from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from nodeagent.runtime.endpoint import server_pid, socket_path


@pytest.mark.parametrize("endpoint", ["unix:///run/x.sock", "/run/x.sock"])
def test_an_endpoint_is_a_unix_socket(endpoint: str) -> None:
    assert socket_path(endpoint) == "/run/x.sock"


@pytest.mark.parametrize("endpoint", ["", "tcp://127.0.0.1:1", "unix://run/x.sock", "npipe:////x"])
def test_any_other_endpoint_is_refused_with_the_correct_form(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"write it as unix:///path/to/the\.sock") as refused:
        socket_path(endpoint)
    assert str(refused.value).startswith(f"{endpoint!r} is not a unix socket")


def test_the_process_that_listens_on_a_socket_is_found_without_waiting(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    assert server_pid(path) == 0
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        assert server_pid(path) == 0
        listening.listen(0)
        assert server_pid(path) == os.getpid()
        assert server_pid(path) == 0  # nobody was let in, and the queue is full
