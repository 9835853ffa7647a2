"""Container images built from a static busybox, so that no registry is needed.

Both images share a layer: busybox, a link for each of its applets, and the few files that a shell
and the runtime expect. Everything variable (order, times, owners) is fixed: the same busybox always
gives the same bytes, and with them the same image IDs.
"""

import dataclasses
import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

BUSYBOX = "localhost/busybox:1"
PAUSE = "localhost/pause:1"

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_COMMANDS: Mapping[str, Sequence[str]] = {
    BUSYBOX: ("/bin/sh",),
    PAUSE: ("/bin/sleep", "2147483647"),
}
_DIRECTORIES = {
    "bin": 0o755,
    "dev": 0o755,
    "etc": 0o755,
    "home": 0o755,
    "proc": 0o555,
    "root": 0o700,
    "run": 0o755,
    "sys": 0o555,
    "tmp": 0o1777,
    "usr": 0o755,
    "var": 0o755,
    "var/log": 0o755,
    "var/tmp": 0o1777,
}
_LINKS = {"sbin": "bin", "usr/bin": "../bin", "usr/sbin": "../bin", "var/run": "../run"}
_FILES = {
    "etc/group": "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
    "etc/passwd": (
        "root:x:0:0:root:/root:/bin/sh\n"
        "user:x:1000:1000:user:/home:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/:/bin/false\n"
    ),
}
_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


@dataclasses.dataclass(frozen=True, slots=True)
class ImageSet:
    """A docker-archive and what is in it: `ids` maps each image's name to its id."""

    archive: bytes
    ids: Mapping[str, str]


def build(busybox: Path) -> ImageSet:
    """Make the images around the static busybox binary at `busybox`."""
    listed = subprocess.run([busybox, "--list"], capture_output=True, check=True, text=True)
    return assemble(busybox.read_bytes(), listed.stdout.split(), go_architecture())


def assemble(busybox: bytes, applets: Iterable[str], architecture: str) -> ImageSet:
    """Make the images from busybox's bytes and the names of its applets; pure."""
    layer = _layer(busybox, sorted(set(applets) - {"busybox"}))
    layer_digest = hashlib.sha256(layer).hexdigest()
    layer_name = f"{layer_digest}/layer.tar"
    entries = {layer_name: layer}
    manifest = []
    ids = {}
    for name, command in _COMMANDS.items():
        config = _config(command, layer_digest, architecture)
        digest = hashlib.sha256(config).hexdigest()
        entries[f"{digest}.json"] = config
        ids[name] = f"sha256:{digest}"
        manifest.append({"Config": f"{digest}.json", "RepoTags": [name], "Layers": [layer_name]})
    entries["manifest.json"] = _json(manifest)
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for path in sorted(entries):
                _add(archive, path, content=entries[path])
        return ImageSet(archive=buffer.getvalue(), ids=ids)


def go_architecture() -> str:
    """Name this machine's architecture as image configurations do."""
    machine = platform.machine()
    return _GO_ARCHITECTURES.get(machine, machine)


def _layer(busybox: bytes, applets: Sequence[str]) -> bytes:
    """Return the one layer: directories first, then files and links in order of their path."""
    links = dict(_LINKS) | {f"bin/{applet}": "busybox" for applet in applets}
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as layer:
            for path, mode in sorted(_DIRECTORIES.items()):
                _add(layer, path, mode=mode, kind=tarfile.DIRTYPE)
            _add(layer, "bin/busybox", mode=0o755, content=busybox)
            for path, text in sorted(_FILES.items()):
                _add(layer, path, content=text.encode())
            for path, target in sorted(links.items()):
                _add(layer, path, mode=0o777, kind=tarfile.SYMTYPE, target=target)
        return buffer.getvalue()


def _config(command: Sequence[str], layer_digest: str, architecture: str) -> bytes:
    return _json(
        {
            "architecture": architecture,
            "config": {"Cmd": list(command), "Env": [f"PATH={_PATH}"], "WorkingDir": "/"},
            "created": "1970-01-01T00:00:00Z",
            "os": "linux",
            "rootfs": {"diff_ids": [f"sha256:{layer_digest}"], "type": "layers"},
        }
    )


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _add(
    archive: tarfile.TarFile,
    path: str,
    *,
    mode: int = 0o644,
    content: bytes = b"",
    kind: bytes = tarfile.REGTYPE,
    target: str = "",
) -> None:
    """Add one member owned by root and dated 1970, whatever this machine's clock and user say."""
    member = tarfile.TarInfo(path)
    member.mode = mode
    member.type = kind
    member.linkname = target
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
