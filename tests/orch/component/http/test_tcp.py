import socket

import pytest

from orch.component.http import tcp


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_dead_peer_is_noticed_within_about_a_minute(family: socket.AddressFamily) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        tcp.notice_dead_peer(connection)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, probes, unacknowledged_ms = (
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (
                socket.TCP_KEEPIDLE,
                socket.TCP_KEEPINTVL,
                socket.TCP_KEEPCNT,
                socket.TCP_USER_TIMEOUT,
            )
        )
        assert idle + interval * probes == 60
        assert unacknowledged_ms == 60_000


def test_sockets_that_are_not_tcp_are_left() -> None:
    one, other = socket.socketpair()
    with one, other:
        tcp.notice_dead_peer(one)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
