"""Every identifier of the service, exactly as the specification writes it, and its version.

Groups, versions, label and annotation keys, taints, namespaces, user and group names. The interface
follows release 1.35 of the reference system, so that clients which compare minor versions accept
it; the suffix counts this project's own releases.
"""

from __future__ import annotations

from typing import Final

CORE_VERSION = "v1"
COORDINATION_GROUP = "coordination.orch.io"
AUTHORIZATION_GROUP = "authorization.orch.io"
AUTHENTICATION_GROUP = "authentication.orch.io"
RBAC_GROUP = "rbac.authorization.orch.io"
SCHEDULING_GROUP = "scheduling.orch.io"
EVENTS_GROUP = "events.orch.io"
NODE_GROUP = "node.orch.io"
EXTENSIONS_GROUP = "apiextensions.orch.io"
ADMISSION_GROUP = "admissionregistration.orch.io"
CERTIFICATES_GROUP = "certificates.orch.io"
AUDIT_GROUP = "audit.orch.io"
DIAGNOSTICS_GROUP = "config.orch.io"
AGENT_CONFIG_API_VERSION: Final = "nodeagent.config.orch.io/v1beta1"
AGENT_CONFIG_KIND: Final = "NodeAgentConfiguration"
# Servers of webhooks have it compiled in, as `kubectl` has the next.
REVIEW_API_VERSION = "admission.k8s.io/v1"
TABLE_API_VERSION = "meta.k8s.io/v1"  # kubectl has this group compiled in

NODE_LEASE_NAMESPACE = "orch-node-lease"
SYSTEM_NAMESPACE = "orch-system"
DEFAULT_NAMESPACE = "default"
DEFAULT_SERVICE_ACCOUNT = "default"

LABEL_ARCH = "orch.io/arch"
LABEL_HOSTNAME = "orch.io/hostname"
LABEL_OS = "orch.io/os"
LABEL_INSTANCE_TYPE = "node.orch.io/instance-type"
LABEL_REGION = "topology.orch.io/region"
LABEL_ZONE = "topology.orch.io/zone"
LABEL_ROLE_PREFIX = "node-role.orch.io/"
LABEL_ROLE_PREFIX_UPSTREAM = "node-role.kubernetes.io/"  # the reference's, accepted as well
POD_SECURITY_PREFIX = "pod-security.orch.io/"  # of labels of namespaces
POD_SECURITY_PREFIX_UPSTREAM = "pod-security.kubernetes.io/"  # likewise, and of audit annotations
LABEL_ROLE = "orch.io/role"  # its value is a role too

CAUSE_NODE_FULL = "NodeMemoryForPods"  # of a refused binding or pod: that node takes no more
QUOTA_BYTES = "orch.io/bytes"  # in a ResourceQuota: all objects of the namespace, as stored
CRITICAL_PRIORITY = 2_000_000_000  # pods of this priority and above are never evicted

TAINT_UNREACHABLE = "node.orch.io/unreachable"
TAINT_NOT_READY = "node.orch.io/not-ready"
TAINT_UNSCHEDULABLE = "node.orch.io/unschedulable"
TAINT_MEMORY_PRESSURE = "node.orch.io/memory-pressure"
TAINT_DISK_PRESSURE = "node.orch.io/disk-pressure"
TAINT_PID_PRESSURE = "node.orch.io/pid-pressure"
TAINT_MEMORY_CONTENTION = "node.orch.io/memory-contention-pressure"
TAINT_DISK_CONTENTION = "node.orch.io/disk-contention-pressure"
TAINT_NETWORK_UNAVAILABLE = "node.orch.io/network-unavailable"

ANNOTATION_CONFIG_SOURCE = "orch.io/config.source"
ANNOTATION_CONFIG_SEEN = "orch.io/config.seen"
ANNOTATION_CONFIG_HASH = "orch.io/config.hash"
ANNOTATION_CONFIG_MIRROR = "orch.io/config.mirror"
# The reference's, with the name of a container after it.
ANNOTATION_APPARMOR_PREFIX = "container.apparmor.security.beta.kubernetes.io/"
ANNOTATION_LAST_APPLIED = "orch.io/last-applied-configuration"

# Labels and annotations that the agent sets on sandboxes and containers in the runtime, to find its
# pods after a restart.
RUNTIME_LABEL_POD_NAME = "orch.io/pod.name"
RUNTIME_LABEL_POD_NAMESPACE = "orch.io/pod.namespace"
RUNTIME_LABEL_POD_UID = "orch.io/pod.uid"
RUNTIME_LABEL_CONTAINER_NAME = "orch.io/container.name"
RUNTIME_LABEL_NODE_NAME = "orch.io/node.name"
# These two are named as in the reference: runtimes refresh them when they restore a container from
# a checkpoint, whose other annotations are of the container that was checkpointed.
RUNTIME_ANNOTATION_CONTAINER_HASH = "io.kubernetes.container.hash"
RUNTIME_ANNOTATION_RESTART_COUNT = "io.kubernetes.container.restartCount"
RUNTIME_ANNOTATION_FORMER_HASH = "orch.io/container.hash"  # on containers of older agents
RUNTIME_ANNOTATION_BACKOFF_STEP = "orch.io/container.backoffStep"
RUNTIME_ANNOTATION_ROUND = "orch.io/container.round"  # how often all containers had restarted
RUNTIME_ANNOTATION_DEVICES = "orch.io/container.devices"
RUNTIME_ANNOTATION_CGROUP_PARENT = "orch.io/pod.cgroupParent"
RUNTIME_ANNOTATION_POD_SIZE = "orch.io/pod.size"
RUNTIME_ANNOTATION_GRACE_PERIOD = "orch.io/pod.terminationGracePeriod"

LABEL_BOOTSTRAPPING = "orch.io/bootstrapping"
LABEL_AGGREGATE_PREFIX = "rbac.authorization.orch.io/aggregate-to-"
ANNOTATION_AUTOUPDATE = "rbac.authorization.orch.io/autoupdate"

USER_NODE_PREFIX = "system:node:"
USER_SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
USER_ANONYMOUS = "system:anonymous"
GROUP_SERVICE_ACCOUNTS = "system:serviceaccounts"
GROUP_BOOTSTRAPPERS = "system:bootstrappers"
GROUP_NODES = "system:nodes"
GROUP_MASTERS = "system:masters"
GROUP_AUTHENTICATED = "system:authenticated"
GROUP_UNAUTHENTICATED = "system:unauthenticated"
GROUP_MONITORING = "system:monitoring"
USER_APISERVER = "system:apiserver"
USER_CONTROLLER_MANAGER = "system:controller-manager"
USER_BOOTSTRAP_PREFIX = "system:bootstrap:"

SIGNER_CLIENT = "orch.io/apiserver-client"
SIGNER_NODE_CLIENT = "orch.io/apiserver-client-nodeagent"
SIGNER_NODE_SERVING = "orch.io/nodeagent-serving"
# The reference's names of the same signers, which its tools ask for.
SIGNERS_UPSTREAM = {
    "kubernetes.io/kube-apiserver-client": SIGNER_CLIENT,
    "kubernetes.io/kube-apiserver-client-kubelet": SIGNER_NODE_CLIENT,
    "kubernetes.io/kubelet-serving": SIGNER_NODE_SERVING,
}

DEFAULT_ROOT_DIR = "/var/lib/nodeagent"
DEFAULT_LOCK_FILE = "/var/run/nodeagent.lock"
AGENT_PORT = 10250
AGENT_HEALTHZ_PORT = 10248
APISERVER_PORT = 6443

MAJOR = "1"
MINOR = "35"
VERSION = f"v{MAJOR}.{MINOR}.0+orch.1"
