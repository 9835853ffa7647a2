"""docs/kubectl.md, made from the cases that are run: `python -m tests.e2e.kubectltable`."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.kubectlcases import CASES
from tests.e2e.kubectlworld import VERSIONS, Case

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kubectl.md"
_HEAD = """# kubectl

With this page you know whether a command of your unmodified `kubectl` works here, by its version,
with validation on. The table is made from the list of cases that the tests run
(`python -m tests.e2e.kubectltable`): `make test` runs them with the oldest and the newest version
on the machine, `make soak` with all.

"""
_FOOT = """
¹ With `--serve-upstream-aliases` (see [the API server](apiserver.md)).
"""
_SCRIPTS = """
## The reference's own scripts

What `test/cmd` of Kubernetes 1.36 says with its `kubectl` (1.36.3, unmodified), run by hand on
2026-11-28 (they are not part of this tree). Server and controller manager run as the scripts'
runner starts the reference's: tokens from a file, `--authorization-mode=RBAC,AlwaysAllow`, a CA
for requests for certificates, a Node without an agent; here also `--serve-upstream-aliases`,
`ALLOW_SKEW` (server and client have different versions), and the namespaces `kube-system` and
`kube-public`, which the reference's server makes. A script goes on where an assertion fails, so
each is judged by itself.

| scripts | passed | failed |
|---|---|---|
| core (pods, namespaces, ConfigMaps, Secrets, accounts, quotas, nodes, templates) | 217 | 17 |
| apply, client-side and at the server; create; delete; diff; save-config | 128 | 47 |
| get, template-output, generic-resources, discovery | 209 | 60 |
| crd | 66 | 0 |
| rbac | 65 | 12 |
| authentication, authorization, auth whoami, certificate | 36 | 0 |
| debug | 196 | 0 |
| exec, run, node-management, request-timeout, results, version | 77 | 1 |
| events | 10 | 23 |
| wait, scale | 0 | 25 |
| kubeconfig, kuberc, plugins, help; what the runner asks itself | 131 | 1 |
| **all** | **1,135** | **186** |

No assertion about kinds that are served fails, but for one: `kubectl replace` of a pod by a file
without `serviceAccountName` is refused, as by the reference's server with its own settings (the
runner switches the plugin `ServiceAccount` off); one command in save-config fails for the same.
The other 185 need kinds that this server does not have:

- Services, Deployments, ReplicaSets, ReplicationControllers, CronJobs, Jobs, autoscalers,
  disruption budgets, volume claims. wait, scale and events use nothing else.
- `apply --prune` and `diff --prune` without `--prune-allowlist`: `kubectl` then looks for
  Endpoints, Jobs and others before it does anything. Assertions about the pods that stay are
  among these.
- `get all` with each of its kinds; roles for `deployments.apps`, which `kubectl` looks up first;
  directories and lists in which one of these kinds is.

Not run are the 19 parts about nothing but such kinds (apps, batch, storage, services, `convert`).
"""


def render() -> str:
    lines = [
        f"| command | {' | '.join(VERSIONS)} |",
        f"|---|{'---|' * len(VERSIONS)}",
        *(_row(case) for case in CASES),
    ]
    notes = [f"\n`{case.command}`: {case.never}.\n" for case in CASES if case.never]
    return _HEAD + "\n".join(lines) + "\n" + _FOOT + "".join(notes) + _SCRIPTS


def _row(case: Case) -> str:
    marked = f"`{case.command}`" + (" ¹" if case.aliases else "")
    cells = ("yes" if case.works_with(version) else "no" for version in VERSIONS)
    return f"| {marked} | {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(render())
