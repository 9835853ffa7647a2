"""Makes `.deb` files of staged trees, with dpkg-deb alone.

packaging/deb/PACKAGE holds the control file and the maintainer scripts, in which `@FUNCTIONS@`
stands for what several of them share.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

from orch.wire.names import VERSION
from tools.packages.contents import Contents

_SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_HEAD = """Source: nodeagent
Version: {version}
Architecture: {architecture}
Maintainer: The nodeagent project <maintainers@example.com>
Installed-Size: {size_kib}
Priority: optional
Homepage: https://example.com/nodeagent
"""
_COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: nodeagent
Comment: The libraries below /usr/lib/{name} have licences of their own, in their dist-info folders.

Files: *
Copyright: the nodeagent project
License: Apache-2.0
 On Debian systems the text of this licence is in /usr/share/common-licenses/Apache-2.0.
"""
# What tells root's own from everybody's: modes below /etc, the rest is 0644 or 0755.
_MODES = {
    "etc/nodeagent": 0o700,
    "etc/nodeagent/config.d": 0o700,
    "etc/nodeagent/manifests": 0o700,
    "etc/nodeagent/config.yaml": 0o600,
}
# Of each package: the file or folder as seen from packaging/files, and where it lies. The example
# of Prometheus is laid out as it is to be copied into /etc.
_PROMETHEUS = "usr/share/doc/orch-server/examples/prometheus"
_ADDED = {
    "nodeagent": {
        "config.yaml": "etc/nodeagent/config.yaml",
        "tmpfiles.conf": "usr/lib/tmpfiles.d/nodeagent.conf",
        "10-pods.conflist": "usr/share/doc/nodeagent/examples/10-pods.conflist",
    },
    "orch-server": {
        "etcd.conf": "usr/share/doc/orch-server/examples/etcd.conf",
        "prometheus.yml": f"{_PROMETHEUS}/prometheus/orch.yml",
        "prometheus.conf": f"{_PROMETHEUS}/systemd/system/prometheus.service.d/orch.conf",
        "../../deploy/mixin/alerts.yaml": f"{_PROMETHEUS}/prometheus/orch-rules/alerts.yaml",
        "../../deploy/mixin/rules.yaml": f"{_PROMETHEUS}/prometheus/orch-rules/rules.yaml",
        "../../deploy/mixin/dashboards": "usr/share/doc/orch-server/examples/dashboards",
    },
}
# Files that the programs make in /etc, removed with the package's configuration.
_AUTHORITY = (
    "ca.crt", "ca.key", "nodeagent-ca.crt", "nodeagent-ca.key", "client-ca.crt", "tls.crt",
    "tls.key", "nodeagent-client.crt", "nodeagent-client.key", "service-account.crt",
    "service-account.key", "admin.crt", "admin.key", "admin.kubeconfig", "controller-manager.crt",
    "controller-manager.key", "controller-manager.kubeconfig", "monitoring.crt", "monitoring.key",
    "bootstrap-token",
)  # fmt: skip
MADE = {
    "nodeagent": tuple(
        f"/etc/nodeagent/{name}" for name in ("kubeconfig", "join.env", "config.d/10-join.conf")
    ),
    "orch-server": tuple(f"/etc/orch-apiserver/{name}" for name in _AUTHORITY),
    "orchctl": (),
}


def build(package: Contents, root: Path, packaging: Path, into: Path, version: str = "") -> Path:
    """The package file made of the tree at `root`, which is changed; `version` is for tests."""
    version = version or VERSION.removeprefix("v")
    _add_documents(package, root, packaging)
    control = root / "DEBIAN"
    control.mkdir()
    _write_control(package, root, packaging, version)
    files = sorted(path for path in root.rglob("*") if control not in path.parents)
    _set_modes(root, files)
    regular = [path for path in files if path.is_file() and not path.is_symlink()]
    sums = (f"{_md5(path)}  {path.relative_to(root)}\n" for path in regular)
    (control / "md5sums").write_text("".join(sums))
    conffiles = [f"/{path.relative_to(root)}\n" for path in regular if root / "etc" in path.parents]
    if conffiles:
        (control / "conffiles").write_text("".join(conffiles))
    into.mkdir(parents=True, exist_ok=True)
    made = into / f"{package.name}_{version}_{_architecture()}.deb"
    command = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z9", "--build", str(root), str(made)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return made


def add_files(package: Contents, root: Path, packaging: Path) -> None:
    """What the package has beside programs and pages: configuration, examples."""
    for source, place in _ADDED.get(package.name, {}).items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (packaging / "files" / source).is_dir() else shutil.copy
        copy(packaging / "files" / source, root / place)
    if package.name == "nodeagent":
        for name in ("config.d", "manifests"):
            (root / "etc/nodeagent" / name).mkdir()


def _add_documents(package: Contents, root: Path, packaging: Path) -> None:
    place = root / "usr/share/doc" / package.name
    place.mkdir(parents=True, exist_ok=True)
    (place / "copyright").write_text(_COPYRIGHT.format(name=package.name))
    changes = (packaging.parent / "CHANGELOG.md").read_bytes()
    (place / "changelog.gz").write_bytes(gzip.compress(changes, mtime=0))
    for page in (root / "usr/share/man").rglob("*.[18]"):
        page.with_name(f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
        page.unlink()


def _write_control(package: Contents, root: Path, packaging: Path, version: str) -> None:
    control, source = root / "DEBIAN", packaging / "deb" / package.name
    size = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())
    name, *rest = (source / "control").read_text().splitlines(keepends=True)
    head = _HEAD.format(version=version, architecture=_architecture(), size_kib=size // 1024)
    (control / "control").write_text(name + head + "".join(rest))
    (control / "triggers").write_text("interest-noawait /usr/bin/python3\n")
    shared = (packaging / "deb/functions").read_text()
    if (source / "functions").exists():
        shared += "\n" + (source / "functions").read_text()
    for script in _SCRIPTS:
        if (source / script).exists():
            text = (source / script).read_text().replace("@FUNCTIONS@\n", shared)
            text = text.replace("@NAME@", package.name).replace(
                "@MADE@", " ".join(MADE[package.name])
            )
            (control / script).write_text(text)


def _set_modes(root: Path, files: list[Path]) -> None:
    for path in (root, *files):
        if path.is_symlink():
            continue
        wanted = (
            0o755 if path.is_dir() or (os.access(path, os.X_OK) and path.suffix != ".so") else 0o644
        )
        path.chmod(_MODES.get(str(path.relative_to(root)), wanted))
    for script in (root / "DEBIAN").iterdir():
        script.chmod(0o755 if script.name in _SCRIPTS else 0o644)


def _architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
