"""Runs inside a virtual machine: commands come over a virtio port as JSON lines, answers go back.

A request is `{"argv": […], "given": base64, "timeout_s": …}`, its answer
`{"code": …, "out": base64, "err": base64}`; 124 is the exit code of what took too long. The command
`page METHOD URL` is this program's own: what the cluster's administrator is told over HTTPS,
without the seconds that an interpreter takes to start here. Standard library only: it starts early,
with whatever Python the machine has.
"""

import base64
import functools
import io
import json
import subprocess
import sys

_ADMIN = "/root/pki"
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin", "HOME": "/root", "LANG": "C.UTF-8"}


def main(port: str) -> None:
    with open(port, "r+b", buffering=0) as stream:  # noqa: PTH123
        send(stream, {"ready": True})
        waiting = b""
        while True:
            waiting += stream.read(65536)
            *lines, waiting = waiting.split(b"\n")
            for line in lines:
                send(stream, answer(json.loads(line)))


def send(stream: io.RawIOBase, message: dict) -> None:
    """Write the whole line: the port takes only as much at once as its buffers hold."""
    left = memoryview(json.dumps(message).encode() + b"\n")
    while left:
        left = left[stream.write(left) :]


def answer(request: dict) -> dict:
    if request["argv"][0] == "page":
        return page(*request["argv"][1:], request["timeout_s"])
    try:
        done = subprocess.run(
            request["argv"],
            input=base64.b64decode(request["given"]),
            capture_output=True,
            timeout=request["timeout_s"],
            env=_ENVIRONMENT,
            cwd="/",
        )
        code, out, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as expired:
        code, out, errors = 124, expired.stdout or b"", expired.stderr or b""
    except OSError as error:
        code, out, errors = 127, b"", str(error).encode()
    return {"code": code, "out": _text(out), "err": _text(errors)}


def page(method: str, url: str, timeout_s: float) -> dict:
    import urllib.request  # here, since it takes long to load and the machine waits for this

    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, context=_context(), timeout=timeout_s) as response:
            return {"code": 0, "out": _text(response.read()), "err": ""}
    except urllib.request.HTTPError as error:
        return {"code": 1, "out": "", "err": _text(f"{error}: ".encode() + error.read(2000))}
    except OSError as error:
        return {"code": 1, "out": "", "err": _text(str(error).encode())}


@functools.cache
def _context() -> "ssl.SSLContext":  # noqa: F821
    import ssl

    context = ssl.create_default_context(cafile=f"{_ADMIN}/ca.crt")
    context.load_cert_chain(f"{_ADMIN}/admin.crt", f"{_ADMIN}/admin.key")
    return context


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


if __name__ == "__main__":
    main(sys.argv[1])
