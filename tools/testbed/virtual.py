"""A virtual machine with a kernel of its own: cgroup v2, pressure stalls, containerd and CRIU.

`ensure` builds kernel and disk image from packages; `virtual` boots them with QEMU. The processor
is emulated, some ten times slower than this one: tests inside check behaviour, never speed. A boot
never changes the image.
"""

from __future__ import annotations

import base64
import compileall
import json
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tools.runtime_lib import images, locks, packages
from tools.runtime_lib.progress import RuntimeToolError, run, say
from tools.testbed.installed import REPOSITORY
from tools.testbed.machine import Machine

# Stable's kernel for clouds has NVMe and ext4 built in, and so needs no initial RAM disk.
_KERNEL_SUITE = "trixie"
_KERNEL = r"linux-image-6\.12\.\d+\+deb13-cloud-amd64"
# On a busy host the emulated timer may miss the kernel's test of it at boot ("8254 timer not
# connected to IO-APIC"), which ends in a panic when its other tries fail too: no_timer_check.
# And where the kernel would clear memory needlessly, or byte by byte, it is told not to.
_KERNEL_LINE = (
    "console=ttyS0 root=/dev/nvme0n1 rw psi=1 panic=-1 quiet mitigations=off audit=0 nokaslr"
    " no_timer_check norandmaps init_on_alloc=0 clearcpuid=rep_good transparent_hugepage=never"
    " apparmor=0"
)
_BOOTS = 4
_BOOT_S = 240.0
_IMAGE_BYTES = 4 << 30
_DISK_WRITES = 16 << 20  # bytes a second: faster than the processor, no writer would wait for it
# Of the tests' own packages, large and of no use to the programs.
_LEFT_OUT = ("kubernetes", "matplotlib", "numpy", "numpy.libs", "fontTools", "mypy", "pip", "PIL")
_CONTAINERD = """version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
"""
_NETWORK = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "pods0",
            "isGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]},
        }
    ],
}
# Half of the work of a boot is done by these, and none of it is needed.
_NEEDLESS = (
    "systemd-udevd.service", "systemd-udev-trigger.service", "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket", "systemd-hwdb-update.service", "systemd-logind.service",
    "systemd-journal-catalog-update.service", "serial-getty@ttyS0.service", "getty@tty1.service",
    "ldconfig.service", "systemd-update-done.service", "systemd-sysusers.service",
    "systemd-random-seed.service", "systemd-user-sessions.service", "systemd-remount-fs.service",
    "kmod-static-nodes.service", "modprobe@configfs.service", "modprobe@fuse.service",
    "modprobe@drm.service", "sys-kernel-config.mount", "sys-fs-fuse-connections.mount",
    "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "dev-hugepages.mount",
    "dev-mqueue.mount", "tmp.mount", "proc-sys-fs-binfmt_misc.automount", "getty.target",
    "systemd-ask-password-wall.path", "systemd-ask-password-console.path",
    "systemd-ask-password.socket", "systemd-creds.socket", "systemd-factory-reset.socket",
    "systemd-hostnamed.socket", "systemd-journalctl.socket", "systemd-logind-varlink.socket",
    "systemd-mute-console.socket", "systemd-sysext.socket", "systemd-sysinstall.socket",
    "systemd-udevd-varlink.socket", "systemd-binfmt.service", "systemd-firstboot.service",
    "systemd-hibernate-clear.service", "systemd-journal-flush.service",
    "systemd-machine-id-commit.service", "systemd-tmpfiles-clean.timer",
)  # fmt: skip
_MODULES = "virtio_pci\nvirtio_console\n"  # what udev would load
_RUNNER = """[Unit]
Description=Runs the commands of the tests
After=multi-user.target
[Service]
Type=idle
Environment=PYTHONHOME=/opt/python LD_LIBRARY_PATH=/opt/python/lib
ExecStart=sh -c 'exec /opt/python/bin/python3 /opt/testbed/runner.py /dev/vport*p1'
"""
_READY = """[Unit]
Description=Addresses of the machine
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/ip link set lo up
ExecStart=/usr/sbin/ip link add node0 type dummy
ExecStart=/usr/sbin/ip address add 10.0.2.15/24 dev node0
ExecStart=/usr/sbin/ip link set node0 up
ExecStart=/usr/sbin/ip route add default dev node0
"""
# $1 is the root, $2 scratch, $3 the image; then pairs of what is shown where, as in a booted one.
_IMAGE = """
set -eu
lower=$1 own=$2 image=$3
shift 3
mkdir -p "$own/upper" "$own/work" "$own/root"
mount -n -t overlay -o "lowerdir=$own/extra:$lower,upperdir=$own/upper,workdir=$own/work" \
  overlay "$own/root"
while [ $# -gt 0 ]; do
  place=$own/root$2
  if [ -d "$1" ]; then mkdir -p "$place"; else mkdir -p "${place%/*}"; touch "$place"; fi
  mount -n --bind "$1" "$place"
  shift 2
done
cd "$own/root/opt/nodeagent/site-packages"
for hidden in $LEFT_OUT ../../python/lib/python3*/test ../../python/lib/python3*/site-packages; do
  if [ -d "$hidden" ]; then mount -n -t tmpfs tmpfs "$hidden"; fi
done
cd /
chroot "$own/root" depmod "$KERNEL"
mke2fs -q -t ext4 -O ^has_journal -E lazy_itable_init=1 -d "$own/root" "$image"
"""


class MachineEndedError(RuntimeToolError):
    """The machine has ended; the last lines of its console say why."""


class VirtualMachine(Machine):
    """A running QEMU; commands go over its virtio port, one after the other."""

    def __init__(self, connection: socket.socket, console: Path) -> None:
        self._connection = connection
        self._console = console
        self._waiting = b""

    def run(
        self, *command: str, given: bytes = b"", timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        request = {
            "argv": command,
            "given": base64.b64encode(given).decode(),
            "timeout_s": timeout_s,
        }
        self._connection.settimeout(timeout_s + 60)
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            raise self._end() from None
        told = self.receive()
        out, errors = (
            base64.b64decode(told[key]).decode(errors="replace") for key in ("out", "err")
        )
        return subprocess.CompletedProcess(command, told["code"], out, errors)

    def receive(self) -> dict[str, str]:
        """The next line of the machine; MachineEndedError when it has gone."""
        while b"\n" not in self._waiting:
            received = self._connection.recv(1 << 16)
            if not received:
                raise self._end()
            self._waiting += received
        line, self._waiting = self._waiting.split(b"\n", 1)
        told: dict[str, str] = json.loads(line)
        return told

    def _end(self) -> MachineEndedError:
        return MachineEndedError(f"the virtual machine has ended: {_tail(self._console)}")


def ensure(base: Path, root: Path, shown: Sequence[tuple[Path, str]]) -> None:
    """Make `BASE/vmlinuz` and `BASE/disk.ext4` unless they are there.

    `root` is that of `testroot.ensure`; `shown` directories are copied into the image.
    """
    if shutil.which("qemu-system-x86_64") is None or platform.machine() != "x86_64":
        raise RuntimeToolError("qemu-system-x86_64 (Debian: qemu-system-x86) is missing")
    base.mkdir(parents=True, exist_ok=True)
    with locks.held(base):
        if not (base / "modules").is_dir():
            _fetch_kernel(base)
        _make_image(base, root, shown)


class EmulatedMachine(Machine):
    """A machine that is booted again, and prepared again, between tests if it has ended.

    `boot` returns a machine that ends with its context, `prepare` installs what the tests expect.
    It is booted at most `_BOOTS` times in all.
    """

    def __init__(
        self,
        boot: Callable[[], AbstractContextManager[Machine]],
        prepare: Callable[[Machine], None],
    ) -> None:
        self._boot = boot
        self._prepare = prepare
        self._left = _BOOTS
        self._running: tuple[Machine, ExitStack] | None = None

    def ensure_running(self) -> None:
        """Boot again if the machine has ended: before a test, never within one."""
        try:
            self.run("true")
        except MachineEndedError as error:
            say(f"booting again: {error}")
            self.start()

    def start(self) -> None:
        """End the machine that runs, boot another; MachineEndedError when no boot is left."""
        while True:
            self.stop()
            if not self._left:
                raise MachineEndedError(f"the virtual machine ended {_BOOTS} times")
            self._left -= 1
            with ExitStack() as stack:
                try:
                    machine = stack.enter_context(self._boot())
                    self._prepare(machine)
                except MachineEndedError as error:
                    say(f"booting again: {error}")
                    continue
                self._running = machine, stack.pop_all()
                return

    def stop(self) -> None:
        if self._running is not None:
            _, ending = self._running
            self._running = None
            ending.close()

    def run(
        self, *command: str, given: bytes = b"", timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        if self._running is None:
            raise MachineEndedError("the virtual machine is not running")
        return self._running[0].run(*command, given=given, timeout_s=timeout_s)


@contextmanager
def virtual(
    base: Path, scratch: Path, prepare: Callable[[Machine], None]
) -> Iterator[EmulatedMachine]:
    """Boot, prepare, and end the machine at the end; `scratch` keeps its console and QEMU's log."""
    machine = EmulatedMachine(lambda: _booted(base, scratch), prepare)
    try:
        machine.start()
        yield machine
    finally:
        machine.stop()


@contextmanager
def _booted(base: Path, scratch: Path) -> Iterator[VirtualMachine]:
    door, console = scratch / "commands.sock", scratch / "console.log"
    with (scratch / "qemu.log").open("wb") as log:
        process = subprocess.Popen(
            _qemu(base, door, console), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        with _connected(process, door) as connection:
            machine = VirtualMachine(connection, console)
            connection.settimeout(_BOOT_S)
            try:
                machine.receive()
            except (OSError, RuntimeToolError) as error:
                said = f"{_tail(console)} {_tail(scratch / 'qemu.log')}"
                raise MachineEndedError(f"the machine did not boot: {said}") from error
            yield machine
    finally:
        process.kill()
        process.wait()
        door.unlink(missing_ok=True)


def _qemu(base: Path, door: Path, console: Path) -> list[str]:
    arguments = {
        "-machine": "q35",
        "-accel": "tcg,tb-size=512",
        "-cpu": _processor(),
        "-smp": "1",  # enough for the tests, and no races between the threads that emulate several
        "-m": "2048",
        "-display": "none",
        "-serial": f"file:{console}",
        "-kernel": str(base / "vmlinuz"),
        "-append": _KERNEL_LINE,
        "-drive": f"file={base / 'disk.ext4'},if=none,id=disk,format=raw,snapshot=on,cache=unsafe"
        f",throttling.bps-write={_DISK_WRITES}",
        "-nic": "none",
        "-chardev": f"socket,id=commands,path={door},server=on,wait=off",
    }
    devices = ("nvme,drive=disk,serial=disk", "virtio-serial-pci")
    port = "virtserialport,chardev=commands,name=commands"
    flags = [part for pair in arguments.items() for part in pair]
    attached = [part for device in (*devices, port) for part in ("-device", device)]
    return ["qemu-system-x86_64", "-nodefaults", "-no-reboot", *flags, *attached]


def _processor() -> str:
    """All that QEMU emulates but for two features, by which it is slow, and what is wrong in it.

    With ERMS memory is copied byte by byte, with LA57 page tables have a level more. Before version
    8, QEMU's CX16 corrupts the flags register, and the kernel panics.
    """
    words = run(["qemu-system-x86_64", "--version"]).split()
    version = int(words[words.index("version") + 1].split(".")[0])
    return "max,-erms,-la57" if version >= 8 else "max,-erms,-la57,-cx16"


@contextmanager
def _connected(process: subprocess.Popen[bytes], door: Path) -> Iterator[socket.socket]:
    end_s = time.monotonic() + 30
    with socket.socket(socket.AF_UNIX) as connection:
        while True:
            try:
                connection.connect(str(door))
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end_s:
                    log = door.with_name("qemu.log")
                    raise RuntimeToolError(f"QEMU did not start: {_tail(log)}") from None
                time.sleep(0.05)
        yield connection


def _tail(path: Path) -> str:
    return " | ".join(path.read_text(errors="replace").splitlines()[-5:]) if path.exists() else ""


def _fetch_kernel(base: Path) -> None:
    apt = packages.Apt(base / "apt")
    mirror = apt.mirror(platform.freedesktop_os_release().get("VERSION_CODENAME", ""))
    say("downloading a kernel")
    package = apt.download_alone(_KERNEL_SUITE, mirror, _KERNEL)
    unpacked = base / "kernel"
    run(["dpkg-deb", "-x", str(package), str(unpacked)])
    shutil.copy(next(unpacked.glob("boot/vmlinuz-*")), base / "vmlinuz")
    modules = next(path for path in unpacked.glob("**/lib/modules/*"))
    (base / "version").write_text(modules.name)
    modules.rename(base / "modules")
    shutil.rmtree(base / "apt")
    shutil.rmtree(unpacked)


def _make_image(base: Path, root: Path, shown: Sequence[tuple[Path, str]]) -> None:
    """The disk is made anew each time: it holds the sources as they are now.

    They are compiled here, for the emulated processor would take a minute for each program.
    """
    for source, _ in shown:
        if source.parent == REPOSITORY:
            compileall.compile_dir(source, quiet=2)
    own = base / "image"
    shutil.rmtree(own, ignore_errors=True)
    _add_files(own / "extra", root)
    version = (base / "version").read_text()
    pairs = [*shown, (base / "modules", f"/usr/lib/modules/{version}")]
    pairs.append((Path(__file__).parent, "/opt/testbed"))
    image = base / "disk.ext4"
    image.unlink(missing_ok=True)
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    unshare = ["unshare", "-m", "--propagation", "private", "--"]
    places = [text for ours, theirs in pairs for text in (str(ours), theirs)]
    command = ["sh", "-euc", _IMAGE, "sh", str(root), str(own), str(image), *places]
    settings = [f"LEFT_OUT={' '.join(_LEFT_OUT)}", f"KERNEL={version}"]
    run([*unshare, "env", *settings, *command], timeout_s=300)
    shutil.rmtree(own)


def _add_files(extra: Path, root: Path) -> None:
    units = "usr/lib/systemd/system"
    wanted = "etc/systemd/system/multi-user.target.wants"
    files = {
        f"{units}/testbed-runner.service": _RUNNER,
        f"{units}/testbed-addresses.service": _READY,
        "etc/containerd/config.toml": _CONTAINERD,
        "etc/cni/net.d/10-pods.conflist": json.dumps(_NETWORK),
        "etc/resolv.conf": "",
        "etc/modules-load.d/testbed.conf": _MODULES,
        "etc/hosts": "127.0.0.1 localhost\n10.0.2.15 testbed\n",
    }
    for name, text in files.items():
        path = extra / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (extra / wanted).mkdir(parents=True)
    for unit in ("testbed-runner", "testbed-addresses", "containerd"):
        (extra / wanted / f"{unit}.service").symlink_to(f"/{units}/{unit}.service")
    for unit in _NEEDLESS:
        (extra / wanted).with_name(unit).symlink_to("/dev/null")
    generators = "systemd/system-generators"  # programs that every reload of systemd runs
    (extra / "etc" / generators).mkdir()
    for generator in (root / "usr/lib" / generators).iterdir():
        (extra / "etc" / generators / generator.name).symlink_to("/dev/null")
    archive = images.build(root / "usr/bin/busybox").archive
    (extra / "opt").mkdir()
    (extra / "opt/images.tar").write_bytes(archive)


def import_images(machine: Machine) -> None:
    """Give containerd the images of the tests."""
    machine.check("ctr", "-n", "k8s.io", "images", "import", "/opt/images.tar", timeout_s=120)
