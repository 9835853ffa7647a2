"""The commands that operators type into an unmodified kubectl.

The table in docs/kubectl.md is made from this list (`python -m tests.e2e.kubectltable`), and
test_kubectl_commands.py runs every entry with the versions that the machine has; those without a
function take containers that run, and are tried in test_streams.py.
"""

from __future__ import annotations

from tests.e2e import kubectlaccess as access
from tests.e2e import kubectlapply as serverside
from tests.e2e import kubectlobjects as objects
from tests.e2e.kubectlworld import Case

_LABELS = '{"metadata":{"labels":{"how":"HOW"}}}'
_OPERATION = '[{"op":"add","path":"/metadata/labels/how","value":"json"}]'
CASES = (
    Case("get, -o wide/json/name, -l, --field-selector", objects.reading),
    Case("describe pod/node", objects.describe),
    Case("create -f, configmap, secret, serviceaccount", objects.create),
    Case("create quota, get, describe", objects.quotas),
    Case("create priorityclass, get, describe", objects.priority_classes, aliases=True),
    Case("create with a misspelt field: refused by its path", objects.misspelt, since="1.27"),
    Case("create/delete namespace", objects.namespace),
    Case("create -f of a review", access.review),
    Case("create --dry-run=server", objects.dry_run),
    Case("run", objects.running_a_pod),
    Case("apply", objects.apply),
    Case("diff", objects.diff),
    Case("apply --server-side", serverside.twice),
    Case("apply --server-side --force-conflicts", serverside.conflict),
    Case("apply --server-side of what apply made", serverside.migration),
    Case("apply --server-side --dry-run=server", serverside.dry_run),
    Case("apply --server-side --prune --applyset", serverside.set_of_objects, since="1.27"),
    Case("diff --server-side", serverside.difference),
    Case("get --show-managed-fields", serverside.shown, since="1.27"),
    Case("replace", objects.replacing),
    Case(
        "patch --type=strategic", objects.patching("strategic", _LABELS.replace("HOW", "strategic"))
    ),
    Case("patch --type=merge", objects.patching("merge", _LABELS.replace("HOW", "merge"))),
    Case("patch --type=json", objects.patching("json", _OPERATION)),
    Case("patch --subresource=status", objects.patching_status, since="1.27"),
    Case("edit", objects.editing),
    Case("debug POD --image, --target: without attaching", objects.debugging, since="1.27"),
    Case("debug POD --copy-to, debug node/NODE", objects.debugging_beside),
    Case("delete, --all", objects.deleting),
    Case("delete --cascade=background/foreground/orphan", objects.cascade),
    Case("label", objects.label),
    Case("annotate", objects.annotate),
    Case("cordon, uncordon", objects.cordon),
    Case("taint", objects.taint),
    Case("drain", objects.drain),
    Case("wait --for=condition", objects.wait),
    Case("wait --for=delete of what is gone", objects.wait_for_the_end, since="1.27"),
    Case("events", objects.events, since="1.27"),
    Case("logs, -f, --tail, --timestamps", objects.logs),
    Case("get --raw", objects.raw_paths),
    Case("api-resources, api-versions", objects.api_resources),
    Case("exec, attach, cp, port-forward", None),
    Case("run -it --rm", None),
    Case("debug -it", None, since="1.27"),
    Case("explain", objects.explain),
    Case("auth can-i, --list", access.can_i, aliases=True),
    Case("auth whoami", access.whoami, aliases=True, since="1.28"),
    Case("create role, rolebinding; describe role", access.roles, aliases=True),
    Case("create clusterrole, clusterrolebinding", access.cluster_roles, aliases=True),
    Case("certificate approve, deny", access.certificates, aliases=True),
    Case("the Lease in describe node", access.lease, aliases=True),
    Case("top node", access.top_node, aliases=True),
    Case("top pod", access.top_pod, aliases=True),
)
