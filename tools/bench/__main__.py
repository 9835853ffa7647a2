"""`make bench`: every benchmark, or those named: python -m tools.bench [NAME…]

`heartbeats` alone takes flags: python -m tools.bench heartbeats --help

A yardstick before the first and after the last shows the speed of the machine meanwhile. Each
benchmark prints a table of its figures beside their limits. Its `main` returns how many limits it
missed (None: it has none); the exit code is 1 if any.
"""

from __future__ import annotations

import importlib
import itertools
import sys

from tools.bench import yardstick

BENCHMARKS = {
    "statistics": "sampling, pages, serving and the whole agent, beside C, peers and limits",
    "idle": "the whole agent with the demo pod: start, memory, CPU over five minutes",
    "slow_clients": "10,000 slow clients, 1,000 of them more over TLS: health, memory, the Lease",
    "floods": "nine floods of one user: the p99 of others' requests, beside that at rest",
    "checkpoint": "a checkpoint of 512 MiB: what the agent adds to the runtime's own time",
    "resize": "resizes of a running pod: until the kernel has them, and a storm of them",
    "pods": "110 pods on one node: what the agent costs for each, and adds to the runtime",
    "binding": "1,000 pods without a node, 100 hollow nodes: until all are bound",
    "streams": "exec beside the runtime's own, and 1 GiB copied both ways",
    "apiserver": "durable writes beside etcd, starts, a large cluster, watch fan-out",
    "aiohttp_internals": "what each way past aiohttp's public interface saves, by turns",
    "orchctl": "the client command: from the shell to its first output",
    "authorizer": "access decisions against a plain scan, and reviews over TLS on one core",
    "heartbeat_cost": "one agent's Lease and status loops over TLS: CPU over two minutes",
    "heartbeats": "API server and controller under thousands of hollow nodes",
}


TAKES_FLAGS = ("heartbeats",)


def main(words: list[str]) -> int:
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    flags = words[len(names) :]
    if flags and (len(names) != 1 or names[0] not in TAKES_FLAGS):
        print(f"{flags[0]}: flags belong after the one name that takes them: {TAKES_FLAGS[0]}")
        return 2
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
        return 2
    missed = 0
    yardstick.main()
    for name in names or BENCHMARKS:
        print(f"\n== {name}: {BENCHMARKS[name]}", flush=True)
        benchmark = importlib.import_module(f"tools.bench.{name}")
        missed += (benchmark.main(flags) if flags else benchmark.main()) or 0
    yardstick.main()
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
