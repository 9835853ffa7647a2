"""Access decisions: in the index against a plain scan, and as reviews over TLS on one core.

`BENCH_REVIEWS_SECONDS` (10) shortens each load. The server runs on the first core of the machine,
its clients on the others; each client is a process with a persistent connection.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orch.server.authz.index import RbacIndex
from orch.server.authz.rules import Binding, RoleKey, Rule, Subject
from orch.server.request.attributes import RequestInfo
from orch.wire.records.authentication import Identity
from tools.bench import review_load

SIZES = (100, 1_000, 10_000)
QUESTIONS = 5_000
ROUNDS = 9
SECONDS = float(os.environ.get("BENCH_REVIEWS_SECONDS") or 10)
NAMESPACES = tuple(f"ns{number}" for number in range(50))
RESOURCES = tuple(f"things{number}" for number in range(40))
GROUPS = ("", "apps.io", "batch.io", "store.io")
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")


@dataclass(frozen=True)
class World:
    """3 rules per role, 2 subjects per binding, half of them cluster-wide, 50 namespaces."""

    roles: dict[RoleKey, tuple[Rule, ...]]
    bindings: list[Binding]
    questions: list[tuple[Identity, RequestInfo]]

    def index(self) -> RbacIndex:
        index = RbacIndex()
        for key, rules in self.roles.items():
            index.put_role(key, rules)
        for binding in self.bindings:
            index.put_binding(binding)
        return index

    def scan(self, identity: Identity, info: RequestInfo) -> bool:
        """Look at every binding."""
        return any(
            rule.allows(info)
            for binding in self.bindings
            if binding.namespace in ("", info.namespace)
            and any(subject.matches(identity) for subject in binding.subjects)
            for rule in self.roles[binding.role]
        )


def make_world(size: int, questions: int = QUESTIONS) -> World:
    """`size` roles with a binding each; three identities ask each question."""
    chance = random.Random(size)
    roles: dict[RoleKey, tuple[Rule, ...]] = {}
    bindings = []
    for number in range(size):
        namespace = chance.choice(NAMESPACES) if number % 2 else ""
        key = RoleKey(namespace, f"role{number}")
        roles[key] = tuple(_rule(chance) for _ in range(3))
        subjects = tuple(_subject(chance, size) for _ in range(2))
        bindings.append(Binding(namespace, f"binding{number}", key, subjects))
    asked = [_question(chance, size) for _ in range(questions)]
    return World(roles, bindings, asked)


def _rule(chance: random.Random) -> Rule:
    verbs, resources = chance.sample(VERBS, 4), chance.sample(RESOURCES, 4)
    return Rule(tuple(verbs), tuple(chance.sample(GROUPS, 2)), tuple(resources))


def _subject(chance: random.Random, size: int) -> Subject:
    return Subject(chance.choice(("User", "Group")), f"subject{chance.randrange(size)}")


def _question(chance: random.Random, size: int) -> tuple[Identity, RequestInfo]:
    user, *groups = (f"subject{chance.randrange(size)}" for _ in range(3))
    info = RequestInfo(
        chance.choice(VERBS),
        "",
        is_resource=True,
        group=chance.choice(GROUPS),
        version="v1",
        namespace=chance.choice(NAMESPACES),
        resource=chance.choice(RESOURCES),
        name="x",
    )
    return Identity(user, tuple(groups)), info


def main() -> None:
    """Print the cost of decisions and reviews beside their limits."""
    print(f"{'roles and bindings':>20} {'index µs':>9} {'scan µs':>9} {'faster':>8} {'denied':>7}")
    costs = {size: _decisions(make_world(size)) for size in SIZES}
    ratio = costs[10_000] / costs[1_000]
    print(f"limits: 1,000 ≤ 1.5 µs: {costs[1_000]:.2f}; 10,000 at most 1.5 times that: {ratio:.2f}")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        review_load.measure(Path(name), make_world(1_000), seconds=SECONDS)


def _decisions(world: World) -> float:
    """Print a row; µs per decision in the index."""
    index = world.index()
    fast = _cost_us(index.decide, world.questions, ROUNDS)
    few = world.questions[: max(50, 200_000 // len(world.bindings))]
    slow = _cost_us(world.scan, few, 1)
    answers = [index.decide(*question).allowed for question in few]
    if answers != [world.scan(*question) for question in few]:
        raise AssertionError("the index and the scan disagree")
    denied = 1 - sum(answers) / len(answers)
    print(
        f"{len(world.bindings):>20,} {fast:>9.2f} {slow:>9.1f} {slow / fast:>7.0f}x {denied:>7.0%}"
    )
    return fast


def _cost_us(
    decide: Callable[[Identity, RequestInfo], object],
    questions: Sequence[tuple[Identity, RequestInfo]],
    rounds: int,
) -> float:
    """The median over rounds of µs per question, after one to warm up (compile) when repeated."""
    costs = []
    for _ in range(rounds + (rounds > 1)):
        started = time.process_time()  # of this process alone: a busy machine counts less
        for identity, info in questions:
            decide(identity, info)
        costs.append((time.process_time() - started) / len(questions) * 1e6)
    return statistics.median(costs[1:] if rounds > 1 else costs)
