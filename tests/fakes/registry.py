"""Image registries on a port of this machine, with one image, for those who know the password.

One is a real `docker-registry`. The other speaks as much of the distribution API as a pull needs:
manifests by tag and digest, blobs, basic authentication, and says who asked. containerd has to be
told that they speak plain HTTP.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.client
import io
import json
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.conftest_runtime import RealRuntime
from tools.runtime_lib.images import go_architecture

PASSWORD = "s3cret"
_BCRYPT = "$2b$05$abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK"
_OCI = "application/vnd.oci.image"
_MANIFEST = f"{_OCI}.manifest.v1+json"


def tell(runtime: RealRuntime, address: str) -> None:
    """Tell containerd that the registry there speaks plain HTTP."""
    told = runtime.directory / "registries" / address
    told.mkdir(parents=True)
    (told / "hosts.toml").write_text(f'server = "http://{address}"\n')


@contextmanager
def docker_registry(
    directory: Path, repository: str, program: Path, users: Sequence[str]
) -> Iterator[str]:
    """The address of a real one, which knows these users by PASSWORD; the image is tagged 1."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    directory.mkdir()
    (directory / "htpasswd").write_text("".join(f"{user}:{_BCRYPT}\n" for user in users))
    settings = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(directory / "images")}},
        "http": {"addr": address},
        "auth": {"htpasswd": {"realm": "test", "path": str(directory / "htpasswd")}},
    }
    (directory / "config.yml").write_text(json.dumps(settings))
    command = ["docker-registry", "serve", str(directory / "config.yml")]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _await(address, process)
        _push(address, repository, _image(repository, program), users[0])
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _await(address: str, process: subprocess.Popen[bytes]) -> None:
    host, _, port = address.partition(":")
    until_s = time.monotonic() + 30
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            assert process.poll() is None and time.monotonic() < until_s
            time.sleep(0.02)
        else:
            return


def _push(address: str, repository: str, pages: Mapping[str, tuple[str, bytes]], user: str) -> None:
    """Blobs first, since a manifest names them."""
    login = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
    connection = http.client.HTTPConnection(address, timeout=30)

    def ask(method: str, path: str, body: bytes = b"", kind: str = "text/plain") -> str:
        headers = {"Authorization": f"Basic {login}", "Content-Type": kind}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        assert answer.status < 300, answer.read()
        answer.read()
        return answer.headers.get("Location", "")

    for path, (kind, body) in sorted(pages.items()):
        if "/blobs/" in path:
            upload = ask("POST", f"/v2/{repository}/blobs/uploads/").removeprefix(
                f"http://{address}"
            )
            ask("PUT", f"{upload}&digest={_digest(body)}", body, "application/octet-stream")
        elif path.endswith("/1"):
            ask("PUT", path, body, kind)
    connection.close()


class Registry:
    """`refused` and `served` are the users of all requests ("" is none)."""

    def __init__(self, repository: str, program: Path, password: str) -> None:
        self.refused: list[str] = []
        self.served: list[str] = []
        self.address = ""  # host and port
        self._password = password
        self._pages = _image(repository, program)

    @property
    def image(self) -> str:
        path = next(path for path in self._pages if path.endswith("/manifests/1"))
        return f"{self.address}/{path.removeprefix('/v2/').replace('/manifests/', ':')}"

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        given = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        user, _, password = given.partition(":")
        if password != self._password:
            self.refused.append(user)
            return 401, "application/json", b"{}"
        self.served.append(user)
        found = self._pages.get(path)
        return (200, *found) if found else (404, "application/json", b"{}")

    def tell(self, runtime: RealRuntime) -> None:
        tell(runtime, self.address)

    @contextmanager
    def serving(self) -> Iterator[Registry]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = answer(self.path, self.headers.get("Authorization", ""))
                self.send_response(status)
                if status == 401:
                    self.send_header("WWW-Authenticate", 'Basic realm="test"')
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Docker-Content-Digest", _digest(body))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _image(repository: str, program: Path) -> dict[str, tuple[str, bytes]]:
    """By path: an image whose only file is the static program, tagged 1."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        archive.add(program, arcname=program.name)
    layer = gzip.compress(plain.getvalue(), compresslevel=1)
    config = {
        "architecture": go_architecture(),
        "os": "linux",
        "config": {"Cmd": [f"/{program.name}"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(plain.getvalue())]},
    }
    described = json.dumps(config).encode()
    kind = f"{_OCI}.config.v1+json"
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(kind, described),
            "layers": [_descriptor(f"{_OCI}.layer.v1.tar+gzip", layer)],
        }
    ).encode()
    top = f"/v2/{repository}"
    blobs = {f"{top}/blobs/{_digest(blob)}": ("text/plain", blob) for blob in (described, layer)}
    tagged = {f"{top}/manifests/{tag}": (_MANIFEST, manifest) for tag in ("1", _digest(manifest))}
    return {**blobs, **tagged}


def _descriptor(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
