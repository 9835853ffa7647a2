"""What is typed into both `orchctl` and an unmodified `kubectl`: each command they share, in rows.

FILE, OBJECTS, MAP, TREE, ENV, CERT and KEY stand for files that the tests write.
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
    "get node/n1 pod/shown -o name", "get pods --show-kind", "get cm settings",
    "get cm,sa -A -o name", "get events", "get pod shown -o jsonpath={.spec.containers[*].name}",
    f"get pods -o 'jsonpath={PATHS}'",
    "get pods -o custom-columns=NAME:.metadata.name,ENV:.spec.containers[*].env,NO:.none",
    "get pods -l app=none", "get --raw /healthz", "get --raw /version",
    "get node n1 -o 'jsonpath={.metadata.labels.orch\\.io/os}'", "events", "events --for pod/shown",
    "label node n1 --list", "label nodes n1 disk=ssd", "annotate pod shown note=x",
    "auth can-i get pods", "auth can-i '*' '*'", "auth can-i create nodes --subresource=proxy",
    "auth can-i get /metrics", "auth can-i delete pods --as nobody",
    "auth can-i get pods -A --as nobody", "auth whoami", "auth whoami --as jane --as-group ops",
    "config get-contexts", "config current-context", "config view --minify -o json",
    "config get-contexts -o name", "wait pod/shown --for jsonpath={.metadata.name}=shown",
    "wait pod/gone --for delete", "wait node/n1 --for condition=Ready",
    "label pods --all seen=yes --dry-run=server",
    "delete pod shown --dry-run=server",
    "api-resources --namespaced=false -o name", "api-resources --api-group= --no-headers",
    "api-resources --verbs=list,watch -o name", "cordon n1 --dry-run=server",
    "delete pod shown --dry-run=client -o name",
    "patch node n1 --dry-run=server -p {} -o name", "get leases -A",
    "describe pod shown", "describe node n1", "describe cm,ns", "describe sa default",
    "describe role reader", "describe pods sho",
    "api-versions", "get pod shown -o yaml",
    "get pod shown -o json", "get cm,nodes -o yaml", "get pods -A -o json",
    "get -f OBJECTS -o name", "get -R -f TREE -o name --ignore-not-found", "get pods gone shown",
    "get pods --field-selector metadata.name=shown -o name", "get pods -l 'app in (web,x)'",
    "get po/shown cm/settings", "get roles.rbac.authorization.orch.io", "get pods --chunk-size=1",
    "get pod shown -o jsonpath-as-json={.metadata.labels}", "get pods -n nowhere",
    "get pod shown -o 'go-template={{range $k, $v := .metadata.labels}}{{$k}}={{$v}}{{end}}'",
    "label pods --all --list", "label pod shown none-", "label pod shown app=web",
    "annotate pod shown --list", "annotate pod shown more=y --dry-run=client -o json",
    "logs shown", "logs pod/shown c", "logs shown -c c --tail=2", "logs shown --tail 0",
    "logs shown --tail=-1 --timestamps", "logs shown --since 1h", "logs shown -p",
    "logs shown --since-time=2026-01-01T00:00:00Z", "logs shown --limit-bytes=7", "logs shown -f",
    "logs pair", "logs pair -c i", "logs pair --all-containers --prefix --tail=1",
    "logs -l app=two --tail 2", "logs -l app=two --all-containers --prefix", "logs -l app=none",
    "logs pair --all-containers --ignore-errors --max-log-requests=9",
    "events -A", "events --types=Warning --no-headers", "events -o json",
    "auth can-i --list", "auth can-i --list --as jane --no-headers",
    "auth can-i get pods --subresource=log", "auth can-i get pods/shown -q",
    "auth whoami -o json", "auth whoami -o yaml --as jane", "api-resources -o wide",
    "api-resources --sort-by=kind --no-headers", "api-resources --categories=all",
    "create -f OBJECTS --dry-run=client", "create -R -f TREE --dry-run=server -o name",
    "create ns n --dry-run=client -o yaml", "create namespace n --dry-run=server",
    "create sa n --dry-run=client -o json", "create serviceaccount n --dry-run=server -o name",
    "create configmap n --from-literal=a=b --from-file=x=MAP --dry-run=client -o yaml",
    "create cm n --from-env-file=ENV --dry-run=server -o jsonpath={.data}",
    "create cm n --from-file=TREE --dry-run=client -o yaml -n elsewhere",
    "create secret generic n --from-literal=a=b --type=x/y --dry-run=client -o yaml",
    "create secret generic n --from-file=MAP --dry-run=server -o jsonpath={.type}",
    "create secret tls n --cert=CERT --key=KEY --dry-run=client -o json",
    "create secret docker-registry n --docker-server=r --docker-username=u --docker-password=p "
    "--docker-email=e --dry-run=client -o json",
    "create role n --verb=get,list --verb=watch --resource=pods,pods/log --resource-name=x "
    "--dry-run=client -o yaml",
    "create clusterrole n --verb=get --non-resource-url=/metrics,/a/* --dry-run=client -o json",
    "create clusterrole n --aggregation-rule=a/b=true --dry-run=client -o yaml",
    "create rolebinding n --role=reader --user=jane --group=ops --serviceaccount=default:web "
    "--dry-run=client -o yaml",
    "create clusterrolebinding n --clusterrole=view --user=a --user=b --dry-run=server -o name",
    "create token default --duration 1h -o jsonpath={.spec.expirationSeconds}",
    "create token default --audience a --audience b -o jsonpath={.spec.audiences}",
    "apply -f MAP --dry-run=client", "apply -R -f TREE --dry-run=server", "replace -f OBJECTS "
    "--dry-run=server -o name", "replace -f OBJECTS --dry-run=client",
    "patch -f OBJECTS -p {} -o name --dry-run=server", "patch pod shown -p {}",
    "patch --local -f MAP --type=merge -p '{\"data\":{\"mode\":null}}' -o json",
    "patch --local -f MAP -p '{\"data\":{\"a\":\"1\"}}' -o yaml",
    "patch pod shown --type=json -p [] -o name", "delete -f OBJECTS --dry-run=client",
    "delete pods,cm --all --dry-run=client -o name", "delete pods -l app=none",
    "delete -R -f TREE --ignore-not-found", "delete pod shown --grace-period=0 --dry-run=client",
    "delete pod shown --force --dry-run=server", "cordon -l disk=ssd --dry-run=client",
    "uncordon n1 --dry-run=client", "uncordon -l disk=none", "drain -l disk=none",
    "drain n1 --dry-run=client", "drain -l disk=ssd --dry-run=client --force",
    "wait pod/shown --for create", "wait pod/shown --for=condition=Ready --timeout=1s",
    "wait pod/shown --for 'jsonpath={.status.phase}=Pending'",
]  # fmt: skip
# Both refuse: orchctl in one line, with 2 for words that do not fit together (kubectl has 1).
REFUSED = [
    "get", "get podz", "get pods shown -l app=web", "get pods -l 'a b'", "get --raw nope",
    "get pods --output-watch-events", "get pods -o kyml", "get pod/", "get po/shown cm",
    "get pods --field-selector nothing=1", "get pods --as-group x", "get pods --context=none",
    "get pods --user=none", "get pods --request-timeout=soon", "get pods --nothing",
    "describe pod gone", "logs", "logs gone", "logs pair -c none", "logs a b c", "logs node/n1",
    "logs shown --tail=-2", "logs shown --tail=x", "logs pair -c c --all-containers",
    "logs shown --since 1s --since-time 2026-01-01T00:00:00Z",
    "logs pair --all-containers -f --max-log-requests=1", "events --for pod", "create",
    "create nothing", "create -f /nonexistent", "create -k TREE", "create ns", "create ns a b",
    "create ns default", "create ns Bad_Name", "create sa web -n nowhere",
    "create cm n --from-literal=a", "create cm n --from-file=a/b=MAP --dry-run=client",
    "create cm n --from-literal=a=1 --from-literal=a=2 --dry-run=client",
    "create secret tls n --cert=CERT --key=MAP", "create role n --verb=get",
    "create role n --verb=get --resource=podz --dry-run=client",
    "create rolebinding n --role=a --clusterrole=b --dry-run=client",
    "create rolebinding n --role=a --serviceaccount=x --dry-run=client",
    "create token none", "create token default --duration=10s",
    "create token default --bound-object-kind=Pod --bound-object-name=none", "apply",
    "apply -f TREE/none", "apply -k TREE", "replace", "replace -f MAP", "delete", "delete pods",
    "delete pod gone", "delete pod shown --now --grace-period=3", "delete pod shown --cascade=x",
    "patch pod shown", "patch pod gone -p {}", "patch pod shown -p []", "patch pod shown -p 'a: ['",
    "patch pod shown -p '{\"$patch\":\"delete\"}'", "patch pod shown --type=x -p {}",
    "patch --local -f MAP -p '{\"$patch\":\"delete\"}' -o json",
    "patch pod shown --type=json -p {}",
    "label pod shown", "label pod shown app=x", "label pod shown a=b a-", "label pod shown 'a b=1'",
    "annotate pod shown note=y", "taint node n1", "taint node n1 a-", "taint node n1 a=b",
    "taint node n1 a=b:Never", "taint pod shown a=b:NoSchedule", "cordon", "cordon gone",
    "cordon pod/shown", "uncordon", "drain", "drain gone",
    "wait pod/shown", "wait pod/shown --for=nothing", "wait pod/gone --for=condition=Ready",
    "auth can-i get", "auth nothing", "api-resources -o json", "version -o xml", "config nothing",
    "nothing",
]  # fmt: skip
# On a kubeconfig of their own; what is printed and what is in the file afterwards must agree.
CONFIG = [
    "view", "view --raw", "view --minify", "view -o json --context=two --minify", "view --flatten",
    "view -o jsonpath={.clusters[*].name}", "get-contexts", "get-contexts one",
    "get-contexts -o name", "get-contexts --no-headers", "current-context", "get-clusters",
    "get-users", "use-context two",
    "use two", "use-context none", "rename-context one uno", "rename-context two zwei",
    "rename-context none new", "rename-context one two", "delete-context two", "delete-context one",
    "delete-context none", "delete-cluster c1", "delete-cluster none", "delete-user u2",
    "delete-user none", "set-context two --namespace=x", "set-context new --cluster=c1 --user=u1",
    "set-context --current --namespace=y", "set-cluster c1 --server=https://new",
    "set-cluster c3 --server=https://new --insecure-skip-tls-verify --tls-server-name=x",
    "set-cluster c1 --insecure-skip-tls-verify=true",
    "set-cluster c1 --insecure-skip-tls-verify=false",
    "set-cluster c1 --certificate-authority=CERT --embed-certs",
    "set-cluster c1 --certificate-authority=/nonexistent --embed-certs",
    "set-credentials u1 --token=new", "set-credentials u1 --username=x --password=y",
    "set-credentials u2 --token=new",
    "set-credentials u3 --client-certificate=CERT --client-key=KEY --embed-certs=true",
    "set current-context two", "set clusters.c1.server https://z", "set clusters.new.server https://z",
    "set contexts.one.namespace z", "set users.u1.token z",
    "set clusters.c1.insecure-skip-tls-verify true",
    "set clusters.c1.certificate-authority-data eHg=",
    "set clusters.c1.certificate-authority-data xx --set-raw-bytes", "unset current-context",
    "unset clusters.c1", "unset clusters.c1.server", "unset clusters",
    "unset contexts.one.namespace",
]  # fmt: skip
CONFIG_REFUSED = [
    "use-context", "set-context", "set-context one --current", "get-contexts none",
    "set clusters.c1.nothing x", "set nothing x", "set clusters.c1 x", "set clusters.c1.server",
    "set clusters.c1.certificate-authority-data !", "set-credentials u1 --token=a --username=b",
    "set-cluster c1 --certificate-authority=CERT --insecure-skip-tls-verify", "unset",
    "unset nothing",
]  # fmt: skip
CHANGES: list[tuple[str, str, list[str]]] = [
    ("label", "pod changed", ["label pod changed tier=front app-"]),
    ("relabel", "pod changed", ["label pod changed app=db --overwrite"]),
    ("annotate", "pod changed", ["annotate pod changed a=b note-"]),
    ("taint", "node n1",
     ["taint nodes n1 own=db:NoSchedule slow:NoExecute", "taint node n1 slow-"]),
    ("untaint", "node n1", ["taint node n1 a=b:NoSchedule", "taint node n1 a:NoSchedule-"]),
    ("cordon", "node n1", ["cordon n1", "cordon n1"]),
    ("replace", "pod changed", ["replace -f FILE"]),
    ("replace anew", "cm settings2", ["apply -f MAP", "replace --force -f MAP"]),
    ("apply", "pod changed", ["apply -f FILE", "apply -f FILE"]),
    ("patch", "pod changed", ["patch pod changed --type=json -p "
                              '[{"op":"remove","path":"/metadata/labels/app"}]']),
    ("patch", "pod changed", ["patch pod changed -p "
                              '{"spec":{"containers":[{"name":"c","image":"busybox:2"}]}}']),
    ("patch the status", "pod changed", ["patch pod changed --subresource=status -p "
                                         '{"status":{"phase":"Running"}}']),
    ("make a map", "cm settings2", ["create configmap settings2 --from-literal a=b=c"]),
    ("make a map of a file", "cm settings2", ["create cm settings2 --from-file x=MAP"]),
    ("make a secret", "secret made",
     ["create secret generic made --from-literal a=b", "delete secret made"]),
    ("make a namespace", "ns made", ["create namespace made", "delete ns made"]),
    ("make an account", "sa made", ["create sa made", "delete sa made"]),
    ("delete", "cm settings2", ["create -f MAP", "delete cm settings2"]),
    ("tainted anew", "node n1", ["taint node n1 a=b:NoSchedule",
                                 "taint node n1 a=c:NoSchedule --overwrite"]),
    ("cordon by labels", "node n1", ["cordon -l disk=ssd", "uncordon -l disk=ssd"]),
    ("make a role", "role.rbac.authorization.orch.io made",
     ["create role made --verb=get --resource=pods"]),
    ("grant it", "rolebinding.rbac.authorization.orch.io made",
     ["create rolebinding made --role=made --user=jane"]),
    ("make a cluster role", "clusterrole.rbac.authorization.orch.io made",
     ["create clusterrole made --verb=get --resource=nodes"]),
    ("grant it everywhere", "clusterrolebinding.rbac.authorization.orch.io made",
     ["create clusterrolebinding made --clusterrole=made --group=ops"]),
]  # fmt: skip


# What the tests of other files compare, or what cannot be the same.
ELSEWHERE = {
    "completion": "each prints a script of its own: test_orchctl_completion.py presses Tab",
    "version": "test_versions_are_told_under_the_same_names",
}
_ANSWER_ONLY = ("auth can-i",)  # kubectl warns on standard output of what it was asked about
_GROUPS = re.compile(r"\b(authentication|authorization|rbac\.authorization|coordination)\.k8s\.io")


def rows() -> list[list[str]]:
    """The words of every row that is no refusal."""
    changes = [line.split() for _, _, lines in CHANGES for line in lines]
    config = [["config", *shlex.split(line)] for line in CONFIG]
    return [*map(shlex.split, SAME), *changes, *config]


def normal(text: str, line: str) -> Any:
    """What is compared of an output: data as data, groups by the names of this service."""
    renamed = by_own_names(text)
    if "-o json" in line and "jsonpath" not in line:
        return without_empty(json.loads(renamed or "null"))
    if "-o yaml" in line and not line.startswith("get"):
        return without_empty(yaml.safe_load(renamed))
    if line.startswith(_ANSWER_ONLY) and "--list" not in line:
        return text.split()[0] if text else ""
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
