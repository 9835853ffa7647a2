"""A client of the agent's pages over mutual TLS: a persistent connection, a steady rate."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit


class Client:
    """`info` is what orch-up writes into cluster.json, or a record of the same keys."""

    def __init__(self, info: dict[str, Any], certificate: str = "monitoring") -> None:
        context = ssl.create_default_context(cafile=info["caFile"])
        context.load_cert_chain(info[f"{certificate}Cert"], info[f"{certificate}Key"])
        target = urlsplit(info["nodeagent"])
        self._connection = http.client.HTTPSConnection(
            str(target.hostname), target.port, context=context, timeout=30
        )

    def get(self, path: str) -> bytes:
        """The whole body; RuntimeError for any status but 200."""
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {body[:200]!r}")
        return body

    def latencies(self, paths: Sequence[str], *, requests: int, every_s: float) -> list[float]:
        """Seconds per request; requests begin at a fixed rate, however long earlier ones take."""
        self.get(paths[0])  # the handshake is not part of a scrape on a kept connection
        walls = []
        begun_s = time.perf_counter()
        for number in range(requests):
            time.sleep(max(0.0, begun_s + number * every_s - time.perf_counter()))
            asked_s = time.perf_counter()
            self.get(paths[number % len(paths)])
            walls.append(time.perf_counter() - asked_s)
        return walls

    def close(self) -> None:
        self._connection.close()


def percentile(values: Sequence[float], of_thousand: int) -> float:
    """Nearest rank: 500 is the median, 990 the p99, 999 the p99.9."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * of_thousand // 1000)]
