"""Views of a node for the tests of its page: a usual one, and one that an attacker filled."""

from __future__ import annotations

import math

from nodeagent.overview.view import (
    ArchiveView,
    CauseView,
    CheckView,
    ContainerView,
    Course,
    PodView,
    StoreView,
    View,
)

NOW_NS = 1_800_000_000_000_000_000
POINTS = 60


def course(base: float, swing: float, *, unknown: int = 0) -> Course:
    """A wave; the first `unknown` values are not known."""
    values = [base + swing * (1 + math.sin(at / 4) + math.sin(at / 1.7)) for at in range(POINTS)]
    values[:unknown] = [math.nan] * unknown
    return Course(values[-1], values)


def pod(number: int, **changes: object) -> PodView:
    found = PodView(
        namespace="shop",
        name=f"web-{number}-7c9f8d6b5-x2k{number}q",
        status="Running",
        is_well=True,
        ready=1,
        restarts=0,
        containers=[ContainerView("app", "registry.example/shop/web:1.4.2", "running")],
        cores=course(0.02 * number, 0.1),
        memory_bytes=course(60e6 + number * 9e6, 2e6),
        stalls={"cpu": 0.02 * (number % 7), "memory": 0.0, "io": 0.003},
    )
    return found._replace(**changes)


def view(pods: int = 12) -> View:
    """A node under some pressure."""
    return View(
        node_name="worker-1",
        version="v1.35.0",
        time_ns=NOW_NS,
        cpus=4,
        memory_bytes=16_000_000_000,
        cores=course(1.2, 0.5),
        used_bytes=course(6.1e9, 2e8),
        stalls={
            "cpu": course(0.1, 0.12, unknown=10),
            "memory": course(0.0, 0.0),
            "io": course(0.01, 0.005),
        },
        causes=[
            CauseView(
                "cpu",
                "pod shop/thief (app)",
                "uses 1.6 of 4 cores while others wait 40% of the time",
                ["pod shop/web-3 (app)", "pod shop/web-5 (app)"],
                "give it a cpu limit, or those who wait a request",
                NOW_NS - 270 * 10**9,
            )
        ],
        pods=[
            pod(0, name="broken", status="CrashLoopBackOff", is_well=False, ready=0, restarts=7),
            *[pod(number) for number in range(1, pods)],
        ],
        store=StoreView(
            [ArchiveView("shop/db-0/main", 48_000_000, NOW_NS - 3600 * 10**9, "encrypted")],
            1,
            48_000_000,
            1,
            0,
        ),
        checks=[CheckView("ping", True), CheckView("sampling", True), CheckView("runtime", False)],
    )


# What would run, load, close an element, turn the page around or fill it.
ATTACKS = (
    "<script>document.title='hacked'</script>",
    "</style></td></table><img src=x onerror=alert(1)>",
    "\"'><svg/onload=alert(1)>",
    "javascript:alert(1)",
    "&lt;b&gt;",
    "\u202eetad\u2066\x00\x1b[31m\x85\u2028",
    "]]><!--",
    "<plaintext>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1/'>",
    "<base href='http://127.0.0.1/'>",
    "\U0001f4a5" * 400,
    "&" * 4000,
    "\ud800",
)


def hostile(pods: int = 600) -> View:
    """Every text that somebody else chose is an attack, and everything is too much."""
    usual = view()
    named = [
        pod(
            number,
            namespace=ATTACKS[number % len(ATTACKS)],
            name=ATTACKS[(number + 1) % len(ATTACKS)],
            status=ATTACKS[(number + 2) % len(ATTACKS)],
            containers=[
                ContainerView(ATTACKS[at % len(ATTACKS)], ATTACKS[(at + number) % len(ATTACKS)], a)
                for at, a in enumerate(ATTACKS)
            ],
        )
        for number in range(pods)
    ]
    causes = [
        CauseView(attack, attack, attack, [attack] * 4, attack, NOW_NS) for attack in ATTACKS[:5]
    ]
    archives = [ArchiveView(attack, 1, NOW_NS, attack) for attack in ATTACKS]
    return usual._replace(
        node_name=ATTACKS[0],
        causes=causes,
        pods=named,
        store=StoreView(archives, 10**6, 10**15, 1, 1, ATTACKS[1]),
        checks=[CheckView(attack, False) for attack in ATTACKS],
    )
