"""Whether rooms can be built here; where they cannot, which wall is in the way and what to set."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

BWRAP = "/usr/bin/bwrap"
OLDEST = (0, 8)
"""The first that can forbid further user namespaces inside a room."""
PATIENCE_SECONDS = 20

# The same for root and for an ordinary user. In a user namespace of its own a process can read
# neither environment nor descriptors of one outside, not even as root. A nested one is refused.
ISOLATION = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    *("--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)
SMALLEST_ROOM = (
    *ISOLATION,
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"),
    *("--size", "4096", "--tmpfs", "/tmp", "--unshare-net", "--", "/bin/true"),  # noqa: S108
)

MISSING = "bubblewrap is not installed. Install it: apt-get install bubblewrap"
TOO_OLD = "bubblewrap {version} is too old: rooms need 0.8 or newer (Debian 12, Ubuntu 24.04)"
NO_NAMESPACES = (
    "the kernel forbids user namespaces. Set: sysctl -w user.max_user_namespaces=15000 "
    "kernel.unprivileged_userns_clone=1 (in /etc/sysctl.d to keep it)"
)
APPARMOR = (
    "AppArmor forbids unprivileged user namespaces. Allow them to /usr/bin/bwrap by a profile with "
    "`userns,` in /etc/apparmor.d/bwrap, or set: "
    "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
)
CONTAINER = (
    "the container's seccomp profile forbids namespaces. Start it with: --security-opt "
    "seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
)
OTHER = "bubblewrap does not work here: {error}"
SWITCHED_OFF = "switched off (CLAUDEOPS_ROOMS=off)"


@dataclass(frozen=True, kw_only=True, slots=True)
class RoomsState:
    in_force: bool
    why: str
    """Why there are none, and what to set; empty where they are in force."""
    version: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelFacts:
    """What tells one refusal from another: bubblewrap's own words are the same for most."""

    namespaces_off: bool = False
    apparmor_restricts: bool = False
    in_container: bool = False


def rooms_state(mode: str) -> RoomsState:
    """`auto` and `on` look; what a refusal means for `on` is the caller's to say."""
    if mode == "off":
        return RoomsState(in_force=False, why=SWITCHED_OFF)
    return _looked_up(BWRAP)


def forget_rooms_state() -> None:
    _looked_up.cache_clear()


@lru_cache(maxsize=4)
def _looked_up(program: str) -> RoomsState:
    try:
        version = _said_by([program, "--version"]).stdout.removeprefix("bubblewrap ").strip()
        if _numbers(version) < OLDEST:
            return RoomsState(in_force=False, why=TOO_OLD.format(version=version), version=version)
        room = _said_by([program, *SMALLEST_ROOM])
    except FileNotFoundError:
        return RoomsState(in_force=False, why=MISSING)
    except (OSError, subprocess.TimeoutExpired) as error:
        return RoomsState(in_force=False, why=OTHER.format(error=error))
    if room.returncode == 0:
        return RoomsState(in_force=True, why="", version=version)
    complaint = room.stderr.strip() or f"it ended with code {room.returncode}"
    return RoomsState(in_force=False, why=explain(complaint, kernel_facts()), version=version)


def explain(error: str, facts: KernelFacts) -> str:
    """Bubblewrap's complaint as the wall that caused it, and what to set."""
    is_refusal = re.search(
        r"new namespace|uid map|userns|user namespace|NEWADDR|mount proc|Operation not permitted",
        error,
    )
    if not is_refusal:
        return OTHER.format(error=error[:300])
    if facts.namespaces_off or "ENOSPC" in error:
        reason = NO_NAMESPACES
    elif facts.in_container:
        reason = CONTAINER
    elif facts.apparmor_restricts:
        reason = APPARMOR
    else:
        return OTHER.format(error=error[:300])
    return f"{reason} ({error[:200]})"


def kernel_facts(root: Path = Path("/")) -> KernelFacts:
    system = root / "proc/sys"
    off = (
        _read(system / "user/max_user_namespaces") == "0"
        or _read(system / "kernel/unprivileged_userns_clone") == "0"
    )
    return KernelFacts(
        namespaces_off=off,
        apparmor_restricts=_read(system / "kernel/apparmor_restrict_unprivileged_userns") == "1",
        in_container=any((root / name).exists() for name in (".dockerenv", "run/.containerenv")),
    )


def _said_by(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
