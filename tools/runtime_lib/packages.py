"""Fetches Debian packages into a directory without installing anything on this machine.

apt resolves and downloads with the machine's own settings (proxies, keys, certificates) but with
lists, cache and status of our own, and `dpkg-deb` unpacks. Nothing is configured: maintainer
scripts do not run, which is why this takes seconds. The mirror is the machine's own, so that no
address is hard-coded.
"""

import concurrent.futures
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from .progress import RuntimeToolError, run, say

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_TARGET_FORMAT = "$(LABEL)|$(COMPONENT)|$(RELEASE)|$(CODENAME)|$(REPO_URI)"
SUITES = ("sid", "testing")  # sid is uninstallable now and then; testing follows it
_UNREAD = ("doc", "info", "lintian", "locale", "man")


class Apt:
    """apt with all of its state under one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._archives = directory / "cache" / "archives"
        for path in ("lists/partial", "cache/archives/partial"):
            (directory / path).mkdir(parents=True, exist_ok=True)
        (directory / "status").touch()

    def mirror(self, codename: str) -> str:
        """Ask the machine which mirror serves `codename`, its main suite."""
        for private in (False, True):
            options = self._options() if private else ()
            if private:  # the machine's own lists are empty: fill ours, leave its own alone
                run(["apt-get", *options, "-q", "update"], timeout_s=120)
            listed = run(["apt-get", *options, "indextargets", "--format", _TARGET_FORMAT])
            if address := choose_mirror(listed, codename):
                return address
        raise RuntimeToolError(
            f"apt on this machine names no Debian mirror of its suite {codename!r}; "
            "add one to its sources, or set CONTAINER_RUNTIME_ENDPOINT to a runtime of your own"
        )

    def download(self, suite: str, mirror: str, packages: Iterable[str]) -> Sequence[Path]:
        """Download `packages` of `suite` with all they depend on; return the package files."""
        options = self._use(suite, mirror)
        install = ("-q", "-y", "--download-only", "--no-install-recommends", "install")
        run(["apt-get", *options, *install, *packages], timeout_s=300)
        return sorted(self._archives.glob("*.deb"))

    def download_alone(self, suite: str, mirror: str, pattern: str) -> Path:
        """Download the newest package whose name fits `pattern`, without what it depends on."""
        options = self._use(suite, mirror)
        listed = run(["apt-cache", *options, "pkgnames"]).split()
        fitting = sorted((name for name in listed if re.fullmatch(pattern, name)), key=_numbers)
        if not fitting:
            raise RuntimeToolError(f"cannot download: {suite} has no package like {pattern}")
        place = self._directory / "alone"
        place.mkdir(exist_ok=True)
        run(["apt-get", *options, "-q", "download", fitting[-1]], timeout_s=300, cwd=place)
        return next(place.glob(f"{fitting[-1]}_*.deb"))

    def download_first(
        self, suites: Sequence[str], mirror: str, packages: Sequence[str]
    ) -> tuple[str, list[Path]]:
        """`download` from the first suite that has them all; which one, and the package files.

        The first is tried twice: a mirror may be in the middle of an update.
        """
        told = ""
        for suite in (suites[0], *suites):
            say(f"downloading packages of {suite}")
            try:
                return suite, list(self.download(suite, mirror, packages))
            except RuntimeToolError as error:
                told = str(error)
                say(told)
        raise RuntimeToolError(f"cannot download packages from {mirror}: {told}")

    def _use(self, suite: str, mirror: str) -> Sequence[str]:
        """Fetch the lists of one suite; the options that make apt look there alone."""
        signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
        source = self._directory / "sources.list"
        source.write_text(f"deb {signed}{mirror} {suite} main\n")
        options = (*self._options(), "-o", f"Dir::Etc::sourcelist={source}")
        options += ("-o", "Dir::Etc::sourceparts=/dev/null")
        run(["apt-get", *options, "-q", "update"], timeout_s=120)
        return options

    def _options(self) -> Sequence[str]:
        settings = {
            "Dir::State": self._directory,
            "Dir::State::lists": self._directory / "lists",
            "Dir::State::status": self._directory / "status",
            "Dir::Cache": self._directory / "cache",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Acquire::Languages": "none",
            "Acquire::Retries": "2",
            "Acquire::http::Timeout": "20",
            "APT::Sandbox::User": "root",
            "APT::Update::Error-Mode": "any",  # otherwise an unreachable mirror is a warning
            "Debug::NoLocking": "true",  # the state is ours alone, and behind a lock of ours
        }
        return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def fill(root: Path, packages: Sequence[str]) -> Mapping[str, object]:
    """Unpack `packages` with all they depend on below `root`; their suite and versions.

    The state of apt lies beside `root` meanwhile.
    """
    state = root.with_name("apt")
    apt = Apt(state)
    mirror = apt.mirror(platform.freedesktop_os_release().get("VERSION_CODENAME", ""))
    suite, archives = apt.download_first(SUITES, mirror, packages)
    say(f"unpacking {len(archives)} packages")
    unpack(archives, root)
    shutil.rmtree(state)
    return {"packages": versions(archives), "suite": suite}


def choose_mirror(listed: str, codename: str) -> str | None:
    """Pick from what apt lists (`_TARGET_FORMAT`) Debian's own mirror of `codename`; pure.

    Security and update suites are named otherwise; other vendors' archives may reuse the name of
    the suite, but not the label.
    """
    for line in listed.splitlines():
        label, component, release, code, address = line.split("|", 4)
        if label == "Debian" and component == "main" and codename in (release, code):
            return address
    return None


def _numbers(name: str) -> list[int]:
    """What orders versions within package names: their numbers."""
    return [int(number) for number in re.findall(r"\d+", name)]


def unpack(archives: Iterable[Path], root: Path) -> None:
    """Unpack package files below `root`, laid out as on a machine with a merged /usr."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        for _ in pool.map(lambda archive: _unpack_one(archive, root), archives):
            pass


def _unpack_one(archive: Path, root: Path) -> None:
    excluded = [f"--exclude=./usr/share/{name}/*" for name in _UNREAD]
    into = ["tar", "-x", "-C", str(root), "--keep-directory-symlink", *excluded]
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE
    ) as reading:
        done = subprocess.run(into, stdin=reading.stdout, capture_output=True, text=True)
    if reading.returncode != 0 or done.returncode != 0:
        raise RuntimeToolError(f"cannot unpack {archive.name}: {done.stderr.strip()}")


def versions(archives: Iterable[Path]) -> Mapping[str, str]:
    """Read the version of every package from the names of the package files."""
    pattern = re.compile(r"(?P<name>[^_]+)_(?P<version>[^_]+)_[^_]+\.deb")
    matches = (pattern.fullmatch(unquote(archive.name)) for archive in archives)
    return {match["name"]: match["version"] for match in matches if match}


def require_apt() -> None:
    """Fail with advice on a machine that is not of the Debian family."""
    missing = [name for name in ("apt-get", "dpkg-deb", "tar") if shutil.which(name) is None]
    if missing:
        raise RuntimeToolError(
            f"a runtime is provisioned from Debian packages, but {', '.join(missing)} is missing; "
            "install containerd >= 2 yourself and set CONTAINER_RUNTIME_ENDPOINT"
        )
    say("asking apt for packages")
