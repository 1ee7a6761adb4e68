"""Detects whether bubblewrap sandboxes work on this host and, if not, what to install or set."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

BWRAP = "/usr/bin/bwrap"
OLDEST = (0, 8)
"""The first version with `--disable-userns`."""
TIMEOUT_SECONDS = 20

# The same for root and for an ordinary user. A process in its own user namespace cannot read the
# environment or the descriptors of a process outside, not even as root. Nesting is disabled.
ISOLATION = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    *("--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)
SMALLEST_SANDBOX = (
    *ISOLATION,
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"),
    *("--size", "4096", "--tmpfs", "/tmp", "--unshare-net", "--", "/bin/true"),  # noqa: S108
)

MISSING = "bubblewrap is not installed. Install it: apt-get install bubblewrap"
TOO_OLD = "bubblewrap {version} is too old: sandboxes need 0.8 or newer (Debian 12, Ubuntu 24.04)"
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
SWITCHED_OFF = "switched off (CLAUDEOPS_SANDBOX=off)"


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxState:
    in_force: bool
    why: str
    """The reason why there is no sandbox, and what to set; empty if it is in force."""
    version: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelFacts:
    """Tell causes apart for which bubblewrap prints the same error."""

    namespaces_off: bool = False
    apparmor_restricts: bool = False
    in_container: bool = False


def sandbox_state(mode: str) -> SandboxState:
    """Detect the state for `auto` and `on`; the caller refuses to run for `on` without one."""
    if mode == "off":
        return SandboxState(in_force=False, why=SWITCHED_OFF)
    return _detected(BWRAP)


def forget_sandbox_state() -> None:
    _detected.cache_clear()


@lru_cache(maxsize=4)
def _detected(program: str) -> SandboxState:
    try:
        version = _output_of([program, "--version"]).stdout.removeprefix("bubblewrap ").strip()
        if _numbers(version) < OLDEST:
            why = TOO_OLD.format(version=version)
            return SandboxState(in_force=False, why=why, version=version)
        tried = _output_of([program, *SMALLEST_SANDBOX])
    except FileNotFoundError:
        return SandboxState(in_force=False, why=MISSING)
    except (OSError, subprocess.TimeoutExpired) as error:
        return SandboxState(in_force=False, why=OTHER.format(error=error))
    if tried.returncode == 0:
        return SandboxState(in_force=True, why="", version=version)
    problem = tried.stderr.strip() or f"it ended with code {tried.returncode}"
    return SandboxState(in_force=False, why=explain(problem, kernel_facts()), version=version)


def explain(error: str, facts: KernelFacts) -> str:
    """Turn bubblewrap's error into its cause and what to set."""
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


def _output_of(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


GROUPS_THAT_MAY_PING = Path("/proc/sys/net/ipv4/ping_group_range")
PING_REMEDY = "sysctl -w net.ipv4.ping_group_range='0 2147483647'"


def ping_in_sandbox() -> str:
    """Return "works", or the reason why `ping` does not work in a sandbox, with the remedy.

    No sandbox may open a raw socket. The kernel can permit ping sockets by group instead.
    """
    try:
        lowest, highest = map(int, GROUPS_THAT_MAY_PING.read_text().split())
    except (OSError, ValueError):
        return "unknown: the kernel does not report ping_group_range"
    if lowest <= os.getegid() <= highest:
        return "works"
    return f"does not work: raw sockets are forbidden; set: {PING_REMEDY}"
