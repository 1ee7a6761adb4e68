"""A home lab in namespaces of this machine, for proofs that need real services.

It boots systemd as process 1 with Docker, PostgreSQL, Redis, nginx, sshd and cron on a
copy-on-write view of this machine's files: the project and its `.venv` are at their usual paths,
and nothing outside of the lab's directory changes. It has a network of its own with loopback alone.
It needs root, overlayfs, loop devices and about 2 GB.

    python -m tests.homelab.lab DIRECTORY up            makes a new one, boots and furnishes it
    python -m tests.homelab.lab DIRECTORY run pat id    runs a command as root, pat or another user
    python -m tests.homelab.lab DIRECTORY down

The packages are installed once, into an image under `.pytest_cache`; each lab is a copy of it.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
IMAGES = PROJECT / ".pytest_cache" / "homelab"
FURNISH = HERE / "furnish.sh"
OPERATOR = "pat"
"""The ordinary user of the lab; furnish.sh creates it."""
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "docker.io", "openssh-server", "sudo", "cron"),
    *(
        "nginx",
        "python3-venv",
        "openssl",
        "postgresql",
        "redis-server",
        "sqlite3",
        "busybox-static",
        "bubblewrap",
    ),
    *("procps", "psmisc", "lsof", "iproute2", "iputils-ping", "bind9-dnsutils", "net-tools"),
    *("iptables", "nftables", "sysstat", "smartmontools", "curl", "wget", "git", "rsync", "jq"),
    *("ripgrep", "tree", "netcat-openbsd", "lvm2", "mdadm", "logrotate", "bc", "file"),
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SPACES = ("-m", "-p", "-n", "-u", "-i", "-C")
BOOT_SECONDS = 90
COMMAND_SECONDS = 600

# Both scripts get the directory of the lab in $LAB and run in a mount namespace of their own.
ENTER = """
set -eu
mount --make-rprivate /
mkdir -p "$LAB/disk"
mount -o loop "$LAB/image" "$LAB/disk"
mkdir -p "$LAB/disk/changes" "$LAB/disk/work" "$LAB/disk/root"
mount -t overlay lab -o "lowerdir=/,upperdir=$LAB/disk/changes,workdir=$LAB/disk/work" \
    "$LAB/disk/root"
cd "$LAB/disk/root"
leave_the_host() {
    mkdir -p host
    pivot_root . host
    cd /
    umount -l /host
}
"""
INSTALL = """
mount -t proc proc proc
mount --rbind /dev dev
leave_the_host
# No service starts while packages are installed.
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends $PACKAGES
rm /usr/sbin/policy-rc.d
"""
BOOT = """
mount -t proc proc proc
mount -t sysfs sysfs sys
eval "$CONTROL_GROUPS"
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    : > dev/$device
    mount --bind /dev/$device dev/$device
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
leave_the_host
ip link set lo up
hostname homelab
export container=lab
exec /lib/systemd/systemd --log-target=null --show-status=no systemd.unit=multi-user.target
"""


class HomeLab:
    """A lab in a directory that holds its image, its log and the number of its process 1."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self._outer: subprocess.Popen[bytes] | None = None

    @property
    def is_up(self) -> bool:
        return self._pid_file.exists() and Path(f"/proc/{self._pid}").exists()

    def start(self) -> None:
        """Boot the lab and furnish it."""
        if os.getuid() != 0:
            raise RuntimeError("a home lab needs root: run this proof as root")
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "image").unlink(missing_ok=True)
        copy_sparse(image(), self.directory / "image")
        groups = control_groups()
        with (self.directory / "boot.log").open("wb") as log:
            outer = self._outer = subprocess.Popen(
                ["unshare", *SPACES, "--fork", "--kill-child", "sh", "-c", ENTER + BOOT],
                env={"PATH": PATH, "LAB": str(self.directory), "CONTROL_GROUPS": mounts(groups)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: enter_control_groups(groups, self._group),  # noqa: PLW1509
            )
        until = time.monotonic() + BOOT_SECONDS
        while self._state(outer.pid) not in {"running", "degraded"}:
            if time.monotonic() > until or outer.poll() is not None:
                outer.kill()
                words = (self.directory / "boot.log").read_text(errors="replace")
                raise RuntimeError(f"the home lab did not boot: {words}")
            time.sleep(0.5)
        # The ordinary user runs this interpreter and this project, also from a home of root.
        needed = (PROJECT, Path(sys.base_prefix))
        self.run(["chmod", "o+x", *{str(place) for path in needed for place in path.parents}])
        furnished = self.run(["bash", "-eu", str(FURNISH)])
        if furnished.returncode:
            raise RuntimeError(f"furnish.sh failed in the home lab: {furnished.stderr}")

    def argv(self, argv: Sequence[str], user: str = "root") -> list[str]:
        """Return a command line of this machine that runs another one in the lab."""
        home = "/root" if user == "root" else f"/home/{user}"
        environment = [f"PATH={PATH}", "LANG=C.UTF-8", f"HOME={home}", f"USER={user}"]
        become = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}"]
        groups = [] if user == "root" else ["--init-groups"]
        inside = ["nsenter", "-t", str(self._pid), *SPACES, "--", *become, *groups]
        return [*inside, "env", "-i", *environment, *argv]

    def run(
        self,
        argv: Sequence[str],
        user: str = "root",
        *,
        stdin: str = "",
        seconds: float = COMMAND_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the lab, from its root directory."""
        return subprocess.run(
            self.argv(argv, user),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd="/",
            timeout=seconds,
        )

    def stop(self) -> None:
        """End every process of the lab: the kernel does that when its process 1 ends."""
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(self._pid, signal.SIGKILL)
        if self._outer:
            self._outer.wait()
        self._pid_file.unlink(missing_ok=True)
        for path in control_groups():
            for group, _below, _files in os.walk(Path(path) / self._group, topdown=False):
                remove_group(Path(group))

    @property
    def _group(self) -> str:
        return f"homelab-{self.directory.name}"

    @property
    def _pid_file(self) -> Path:
        return self.directory / "pid"

    @property
    def _pid(self) -> int:
        return int(self._pid_file.read_text())

    def _state(self, outer: int) -> str:
        children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        if not children or b"systemd" not in Path(f"/proc/{children[0]}/cmdline").read_bytes():
            return ""
        self._pid_file.write_text(children[0])
        return self.run(["systemctl", "is-system-running"], seconds=30).stdout.strip()


@contextmanager
def home_lab() -> Iterator[HomeLab]:
    """A booted and furnished lab of its own, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="claudeops-homelab-", dir="/var/tmp") as name:
        lab = HomeLab(Path(name))
        lab.start()
        try:
            yield lab
        finally:
            lab.stop()


def image() -> Path:
    """Return an image with the packages, which is made once."""
    digest = hashlib.sha256(repr((PACKAGES, ENTER, INSTALL)).encode()).hexdigest()[:12]
    made = IMAGES / f"{digest}.ext4"
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (IMAGES / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists():
            return made
        for older in IMAGES.glob("*.ext4"):
            older.unlink()
        with tempfile.TemporaryDirectory(dir=IMAGES) as name:
            raw = Path(name) / "image"
            with raw.open("wb") as file:
                file.truncate(20 * 1024**3)
            subprocess.run(["mkfs.ext4", "-q", raw], check=True)
            installed = subprocess.run(
                ["unshare", "-m", "sh", "-c", ENTER + INSTALL],
                env={"PATH": PATH, "LAB": name, "PACKAGES": " ".join(PACKAGES)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if installed.returncode:
                raise RuntimeError(f"no packages for the home lab: {installed.stderr[-2000:]}")
            raw.rename(made)
    return made


def copy_sparse(source: Path, target: Path) -> None:
    subprocess.run(["cp", "--sparse=always", "--reflink=auto", source, target], check=True)


def control_groups() -> dict[str, str]:
    """Return the mounted hierarchies of control groups: path, and options of `mount`."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _dash, after = line.partition(" - ")
        kind, _device, options = after.split()
        path = before.split()[4]
        if kind == "cgroup2":
            found[path] = "-t cgroup2"
        elif kind == "cgroup":
            chosen = re.sub(r"^rw,?", "", options)
            found[path] = f"-t cgroup -o {'none,' if 'name=' in chosen else ''}{chosen}"
    return found


def enter_control_groups(groups: Mapping[str, str], name: str) -> None:
    """Put this process into a group of its own in each hierarchy, as the lab's root group."""
    for path in groups:
        own = Path(path) / name
        own.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (own / setting).exists() and not (own / setting).read_text().strip():
                (own / setting).write_text((Path(path) / setting).read_text())
        (own / "cgroup.procs").write_text("0")


def remove_group(group: Path) -> None:
    """Remove a control group, once its last process has ended."""
    until = time.monotonic() + 60
    while True:
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def mounts(groups: Mapping[str, str]) -> str:
    """Return shell commands that mount the hierarchies below the current directory."""
    top = "/sys/fs/cgroup"
    lines = [] if top in groups else [f"mount -t tmpfs -o mode=755 tmpfs {top[1:]}"]
    for path, options in groups.items():
        lines += [f"mkdir -p {path[1:]}", f"mount {options} cgroup {path[1:]}"]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make and use a home lab; see the module.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("verb", choices=["up", "run", "down"])
    parser.add_argument("words", nargs=argparse.REMAINDER, help="for run: the user, the command")
    given = parser.parse_args()
    lab = HomeLab(given.directory)
    if given.verb == "run":
        return subprocess.run(lab.argv(given.words[1:], given.words[0]), check=False).returncode
    lab.stop()
    if given.verb == "down":
        shutil.rmtree(lab.directory, ignore_errors=True)
    else:
        lab.start()
    return 0


if __name__ == "__main__":
    sys.exit(main())
