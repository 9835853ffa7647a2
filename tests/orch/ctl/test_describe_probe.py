from __future__ import annotations

from typing import Any

import pytest

from orch.ctl import describe_probe

NUMBERS = "delay=0s timeout=1s period=10s #success=1 #failure=3"


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ({"exec": {"command": ["test", "-e", "/x"]}}, "exec [test -e /x]"),
        ({"httpGet": {"path": "/up", "port": 80, "scheme": "HTTP"}}, "http-get http://:80/up"),
        ({"httpGet": {"path": "a b?c=d", "port": "web", "scheme": "HTTPS", "host": "::1"}},
         "http-get https://[::1]:web/a%20b%3Fc=d"),
        ({"httpGet": {"port": 80, "host": "h"}}, "http-get //h:80"),
        ({"tcpSocket": {"port": 53}}, "tcp-socket :53"),
        ({"grpc": {"port": 9, "service": "s"}}, "grpc <pod>:9 s"),
        ({}, "unknown"),
    ],
)  # fmt: skip
def test_a_probe_is_told_in_one_line(action: dict[str, Any], told: str) -> None:
    numbers = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1,
               "failureThreshold": 3}  # fmt: skip
    assert describe_probe.text({**action, **numbers}) == f"{told} {NUMBERS}"
