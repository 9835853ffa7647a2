"""The official Python client: exec with all streams, and a forwarded port."""

import sys

import kubernetes
from kubernetes.stream import portforward, stream

kubeconfig, pod = sys.argv[1:]
kubernetes.config.load_kube_config(kubeconfig)
core = kubernetes.client.CoreV1Api()

SCRIPT = "read x; echo out $x; echo err >&2; exit 7"
session = stream(
    core.connect_get_namespaced_pod_exec, pod, "default", container="c",
    command=["sh", "-c", SCRIPT], stdin=True, stdout=True, stderr=True, tty=False,
    _preload_content=False,
)  # fmt: skip
session.write_stdin("line\n")
session.run_forever(timeout=30)
said = session.read_stdout(), session.read_stderr(), session.returncode
assert said == ("out line\n", "err\n", 7), said

answer = stream(
    core.connect_get_namespaced_pod_exec, pod, "default", container="c", command=["echo", "whole"],
    stdin=False, stdout=True, stderr=True, tty=False,
)  # fmt: skip
assert answer == "whole\n", answer

ports = portforward(
    kubernetes.client.CoreV1Api().connect_get_namespaced_pod_portforward, pod, "default",
    ports="8080",
)  # fmt: skip
served = ports.socket(8080)
served.setblocking(True)
served.sendall(b"GET /page HTTP/1.0\r\n\r\n")
page = b""
while data := served.recv(4096):
    page += data
assert page.endswith(b"served\n"), page
assert ports.error(8080) is None, ports.error(8080)
