"""The commands that `orchctl` and an unmodified `kubectl` share, in rows to be typed into both.

FILE, OBJECTS, MAP and TREE stand for files that the tests write.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import yaml

PATHS = "{range .items[*]}{.metadata.name}={.spec.nodeName};{end}"
# Nothing is changed; what is printed and the exit code must agree.
SAME = [
    "get all", "get pods -L app,none --show-labels", "get pods --no-headers",
    "get nodes --sort-by .metadata.name", "get ns --sort-by={.metadata.creationTimestamp} -o name",
    "get node/n1 pod/shown -o name", "get pods --show-kind", "get cm,sa -A -o name", "get events",
    "get pod shown -o jsonpath={.spec.containers[*].name}", f"get pods -o 'jsonpath={PATHS}'",
    "get pods -o custom-columns=NAME:.metadata.name,ENV:.spec.containers[*].env,NO:.none",
    "get pods -l app=none", "get --raw /version", "get pods gone shown", "get pods -n nowhere",
    "get node n1 -o 'jsonpath={.metadata.labels.orch\\.io/os}'", "get leases -A",
    "get pod shown -o yaml", "get pod shown -o json", "get cm -o yaml", "get pods -A -o json",
    "get -f OBJECTS -o name", "get -R -f TREE -o name --ignore-not-found",
    "get pods --field-selector metadata.name=shown -o name", "get pods -l 'app in (web,x)'",
    "get roles.rbac.authorization.orch.io", "get pods --chunk-size=1",
    "describe pod shown", "describe pods", "describe pods sh", "describe pods -l app=web -A",
    "describe pods -l app=none", "describe pod shown gone", "describe node n1", "describe wrong x",
    "describe po pair --show-events=false",
    "events", "events --for pod/shown", "events -A --types=Warning",
    "events --types=Warning --no-headers", "auth can-i get pods", "auth can-i '*' '*'",
    "auth can-i get /metrics",
    "auth can-i create nodes --subresource=proxy", "auth can-i delete pods --as nobody",
    "auth can-i get pods -A --as nobody", "auth can-i --list",
    "auth can-i --list --as jane --no-headers", "auth can-i get pods/shown -q",
    "wait pod/shown --for jsonpath={.metadata.name}=shown", "wait pod/gone --for delete",
    "wait node/n1 --for condition=Ready", "wait pod/shown --for create",
    "wait pod/shown --for=condition=Ready --timeout=1s",
    "logs shown", "logs pod/shown c", "logs shown -c c --tail=2", "logs shown -p",
    "logs shown --tail=-1 --timestamps", "logs shown --since 1h", "logs shown -f",
    "logs shown --since-time=2026-01-01T00:00:00Z", "logs shown --limit-bytes=7",
    "logs pair", "logs pair -c i", "logs pair --all-containers --prefix --tail=1",
    "logs -l app=two --all-containers --prefix", "logs -l app=none",
    "logs pair --all-containers --ignore-errors --max-log-requests=9",
    "create -f OBJECTS --dry-run=client", "create -R -f TREE --dry-run=server -o name",
    "create token default --duration 1h -o jsonpath={.spec.expirationSeconds}",
    "create token default --audience a --audience b -o jsonpath={.spec.audiences}",
    "apply -f MAP --dry-run=client", "apply -R -f TREE --dry-run=server",
    "patch -f OBJECTS -p {} -o name --dry-run=server", "patch pod shown -p {}",
    "patch --local -f MAP --type=merge -p '{\"data\":{\"mode\":null}}' -o json",
    "patch --local -f MAP -p '{\"data\":{\"a\":\"1\"}}' -o yaml",
    "patch pod shown --type=json -p [] -o name", "delete -f OBJECTS --dry-run=client",
    "delete pods,cm --all --dry-run=client -o name", "delete pods -l app=none",
    "delete -R -f TREE --ignore-not-found", "delete pod shown --grace-period=0 --dry-run=client",
    "delete pod shown --force --dry-run=server", "cordon -l disk=ssd --dry-run=client",
    "cordon n1 --dry-run=server", "uncordon n1 --dry-run=client", "uncordon -l disk=none",
    "drain -l disk=none", "drain -l disk=ssd --dry-run=client --force",
]  # fmt: skip
# Both refuse: orchctl in one line, with 2 for wrong usage (kubectl has 1).
REFUSED = [
    "get", "get podz", "get pods shown -l app=web", "get pods -l 'a b'", "get --raw nope",
    "get pods --output-watch-events", "get pods -o kyml", "get pod/", "get po/shown cm",
    "get pods --as-group x", "get pods --context=none", "get pods --request-timeout=soon",
    "get pods --nothing", "describe pod gone", "logs", "logs gone", "logs pair -c none",
    "exec gone -- true", "exec shown -c none -- true", "exec shown", "exec node/n1 -- true",
    "logs a b c", "logs node/n1", "logs shown --tail=-2", "logs pair -c c --all-containers",
    "logs shown --since 1s --since-time 2026-01-01T00:00:00Z",
    "logs pair --all-containers -f --max-log-requests=1", "events --for pod", "create",
    "create nothing", "create -f /proc/nothing", "create token none",
    "create token default --duration=10s",
    "create token default --bound-object-kind=Pod --bound-object-name=none", "apply",
    "apply -f TREE/none", "apply -k TREE", "delete", "delete pods", "delete pod gone",
    "delete pod shown --now --grace-period=3", "delete pod shown --cascade=x",
    "patch pod shown", "patch pod gone -p {}", "patch pod shown -p []", "patch pod shown -p 'a: ['",
    "patch pod shown -p '{\"$patch\":\"delete\"}'", "patch pod shown --type=x -p {}",
    "patch --local -f MAP -p '{\"$patch\":\"delete\"}' -o json",
    "patch pod shown --type=json -p {}", "cordon", "cordon gone", "cordon pod/shown", "drain gone",
    "wait pod/shown", "wait pod/shown --for=nothing", "wait pod/gone --for=condition=Ready",
    "auth can-i get", "auth nothing", "version -o xml", "config use-context", "config nothing",
    "nothing",
]  # fmt: skip
# On a kubeconfig of its own; what is printed and what is in the file afterwards must agree.
CONFIG = [
    "view", "view --raw", "view --minify", "view -o json --context=two --minify", "view --flatten",
    "view -o jsonpath={.clusters[*].name}", "get-contexts", "get-contexts one",
    "get-contexts -o name", "get-contexts --no-headers", "use-context two", "use two",
]  # fmt: skip
CHANGES: list[tuple[str, str, list[str]]] = [
    ("cordon", "node n1", ["cordon n1", "cordon n1"]),
    ("cordon by labels", "node n1", ["cordon -l disk=ssd", "uncordon -l disk=ssd"]),
    ("apply", "pod changed", ["apply -f FILE", "apply -f FILE"]),
    ("patch as json", "pod changed", ["patch pod changed --type=json -p "
                                      '[{"op":"remove","path":"/metadata/labels/app"}]']),
    ("patch", "pod changed", ["patch pod changed -p "
                              '{"spec":{"containers":[{"name":"c","image":"busybox:2"}]}}']),
    ("patch the status", "pod changed", ["patch pod changed --subresource=status -p "
                                         '{"status":{"phase":"Running"}}']),
    ("delete", "cm settings2", ["create -f MAP", "delete cm settings2"]),
]  # fmt: skip


# What the tests of other files compare, or what cannot be the same.
ELSEWHERE = {
    "certificate approve": "tests/orch/ctl/objects, and test_join.py",
    "certificate deny": "tests/orch/ctl/objects",
    "completion": "each prints a script of its own: test_orchctl_completion.py presses Tab",
    "exec": "test_streams.py, where containers run",
    "version": "test_versions_are_told_under_the_same_names",
}
_ANSWER_ONLY = ("auth can-i",)  # kubectl warns on standard output of what it was asked about
_GROUPS = re.compile(r"\b(authentication|authorization|rbac\.authorization|coordination)\.k8s\.io")


def rows() -> list[list[str]]:
    """The words of every row that is no refusal."""
    changes = [line.split() for _, _, lines in CHANGES for line in lines]
    config = [["config", *shlex.split(line)] for line in CONFIG]
    return [*map(shlex.split, SAME), *changes, *config]


_AGE = re.compile(r"(?<![=\w])(\d+[shdy](\d+[smhd])?|\d+m\d+s)\b")


def normal(text: str, line: str) -> Any:
    """What is compared of an output: data as data, groups by the names of this service."""
    if line.startswith("get"):  # an age may tick over between the two
        text = _AGE.sub(lambda age: re.sub(r"\d", "#", age[0]), text)
    renamed = by_own_names(text)
    if "-o json" in line and "jsonpath" not in line:
        return without_empty(json.loads(renamed or "null"))
    if "-o yaml" in line and not line.startswith("get"):
        return without_empty(yaml.safe_load(renamed))
    if line.startswith(_ANSWER_ONLY) and "--list" not in line:
        return text.split()[0] if text else ""
    if line.startswith("describe"):
        renamed = _AGE.sub("AGE", renamed)
    if (
        "--all-containers" in line
    ):  # kubectl shows containers in any order, and the lines of each in theirs
        lines = text.strip().splitlines()
        return sorted(lines, key=lambda shown: shown.partition("] ")[0] if "] " in shown else "")
    if renamed != text or "orch.io" in text:  # columns are as wide as what they hold
        return [line.split() for line in renamed.strip().splitlines()]
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def by_own_names(text: str) -> str:
    """kubectl asks under the reference's names of groups, and is answered under them."""
    return _GROUPS.sub(r"\1.orch.io", text)


def without_empty(value: Any) -> Any:
    """Equal data: kubectl writes `preferences: {}` and the like where there is nothing."""
    if isinstance(value, dict):
        return {k: without_empty(v) for k, v in value.items() if v not in ({}, None, "", [])}
    return [without_empty(item) for item in value] if isinstance(value, list) else value
