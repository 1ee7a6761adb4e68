"""ssh, scp and rsync.

There is no sandbox on the other host. So ssh is understood only with a command, which is read like
any other, and with options that start nothing here and forward nothing.
"""

from __future__ import annotations

import re
from dataclasses import replace

from escalation.command_policy.grants import NETWORK, SSH
from escalation.command_policy.programs.options import Grammar, acts, literal, looks, read, writes
from escalation.command_policy.understanding import FULL, Inner, Understanding, Word

# Left out: -F (a configuration that may name programs), -L -R -D -w -W (tunnels), -A (the agent),
# -S -M -O (shared connections), -I (a library), -E (a log file), -f -N (without a command).
OPTIONS = "-4 -6 -a -C -n -q -T -t -tt -v -x -k -p= -l= -i= -J= -c= -m= -o= -b="
SETTING = re.compile(
    r"(?:ConnectTimeout|BatchMode|StrictHostKeyChecking|ServerAliveInterval|ServerAliveCountMax"
    r"|LogLevel|PasswordAuthentication|PreferredAuthentications|IdentitiesOnly|ConnectionAttempts"
    r"|Port|User|HostKeyAlgorithms|PubkeyAcceptedKeyTypes|PubkeyAcceptedAlgorithms|KexAlgorithms"
    r"|Compression|AddressFamily|TCPKeepAlive|RequestTTY|CheckHostIP|HashKnownHosts|ForwardX11=no"
    r"|ForwardAgent=no|ClearAllForwardings|NumberOfPasswordPrompts|UserKnownHostsFile=/dev/null\Z"
    r"|GlobalKnownHostsFile=/dev/null\Z|UpdateHostKeys=no|VisualHostKey|ControlMaster=no\Z"
    r"|ControlPath=none\Z)(?:[= ]|\Z|(?<=no)|(?<=null))",
    re.IGNORECASE,
)
USER_NAME = re.compile(r"[\w][\w.+-]*\Z")
USER = re.compile(r"User\s*[= ]\s*(.*)", re.IGNORECASE | re.DOTALL)
"""The operator's configuration may pass the name to a shell (`ProxyCommand … %r@jump`)."""
HOST_NAME = re.compile(r"(?:[\w.+-]+@)?(?:[\w][\w.-]*|\[[0-9a-fA-F:]+\])\Z")
JUMPS = re.compile(r"(?:[\w.+-]+@)?[\w][\w.-]*(?::\d+)?(?:,(?:[\w.+-]+@)?[\w][\w.-]*(?::\d+)?)*\Z")
REMOTE_PATH = re.compile(r"[\w./~@%+=,*-]*\Z")
"""Paths without characters that have a meaning in a shell."""

SCP = "-3 -4 -6 -B -C -p -q -r -T -v -P= -i= -l= -J= -o= -c="
RSYNC = """
    -a -v -r -l -p -t -g -o -D -z -h -n -u -c -x -H -A -X -S -P -q -i -L -k -W -m -b -d -R -O -J -0
    -E -I -T= -e= -f= -B= --archive --verbose --recursive --links --perms --times --group --owner
    --compress --human-readable --dry-run --update --checksum --one-file-system --hard-links --acls
    --xattrs --sparse --progress --partial --quiet --itemize-changes --copy-links --whole-file
    --prune-empty-dirs --backup --delete --delete-after --delete-before --delete-during
    --delete-excluded --exclude= --include= --exclude-from= --include-from= --filter= --stats
    --info= --bwlimit= --timeout= --contimeout= --rsh= --size-only --ignore-existing --existing
    --inplace --append --append-verify --max-size= --min-size= --numeric-ids --chmod= --chown=
    --list-only --omit-dir-times --relative --no-owner --no-group --no-perms --no-o --no-g --no-p
    --safe-links --backup-dir= --suffix= --port= --files-from= --out-format= --remove-source-files
    --mkpath --stats --no-motd --protect-args -s
"""
READ_LISTS = ("--files-from", "--exclude-from", "--include-from", "--filter", "-f")
"""Error messages about such files would show their content, for example keys."""
BY_SSH_ALONE = re.compile(r"ssh(?: -[pl] ?[\w.-]+| -i ?[\w./~-]+| -q| -T)*\Z")
GRANTS = (SSH, NETWORK)


def ssh(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], OPTIONS, to_operand=True)
    words = literal(line.operands) if line else None
    if line is None or line.unsure or not words:
        return None
    if not _harmless(line.values("-o"), line.values("-J")):
        return None
    if not all(user and USER_NAME.match(user) for user in line.values("-l")):
        return None
    again = read(words[1:], OPTIONS, to_operand=True)
    if not HOST_NAME.match(words[0]) or again is None or again.options or again.unsure:
        return None
    if not again.operands:
        return None
    return Understanding(
        action="ssh",
        arguments=argv[1:],
        grants=frozenset(GRANTS),
        inner=(Inner(text=" ".join(literal(again.operands) or ()), elsewhere=True),),
    )


def _harmless(settings: tuple[Word, ...], jumps: tuple[Word, ...]) -> bool:
    return all(map(_is_harmless_setting, settings)) and all(
        word and JUMPS.match(word) for word in jumps
    )


def _is_harmless_setting(word: Word) -> bool:
    if not word or "\n" in word or not SETTING.match(word):
        return False
    user = USER.match(word)
    return user is None or bool(USER_NAME.match(user[1]))


def scp(argv: tuple[Word, ...]) -> Understanding | None:
    """Read scp without -S (a program), -F, -O (uses a shell on the other side), -D, and without
    copies of local files, which could be keys."""
    line = read(argv[1:], SCP)
    words = literal(line.operands) if line else None
    if line is None or words is None or len(words) < 2:
        return None
    if not _harmless(line.values("-o"), line.values("-J")):
        return None
    sources, target = words[:-1], words[-1]
    if not _is_remote(target) and len({_is_remote(source) for source in sources}) > 1:
        return None
    return _copies("scp", argv, words, dry=False)


def rsync(argv: tuple[Word, ...]) -> Understanding | None:
    """Read rsync without --rsync-path (a program), -M, --daemon, --config, --log-file …"""
    line = read(argv[1:], RSYNC)
    words = literal(line.operands) if line else None
    if line is None or not words:
        return None
    shells = line.values("-e", "--rsh")
    if not all(shell and BY_SSH_ALONE.match(shell) for shell in shells):
        return None
    if line.has(*READ_LISTS) and any(map(_is_remote, words)):
        return None
    dry = line.has("-n", "--dry-run", "--list-only") or len(words) == 1
    if line.has("--remove-source-files") and not dry:
        found = _copies("rsync", argv, words, dry=False)
        return None if found is None else replace(found, level=FULL, why="moves files")
    extra = line.values("-T", "--backup-dir")
    return _copies("rsync", argv, words, dry=dry, extra=extra)


def _copies(
    program: str,
    argv: tuple[Word, ...],
    words: tuple[str, ...],
    *,
    dry: bool,
    extra: tuple[Word, ...] = (),
) -> Understanding | None:
    remote = [word for word in words if _is_remote(word)]
    if not all(map(_is_plain_remote, remote)):
        return None
    grants = GRANTS if remote else ()
    if dry:
        return looks(argv, *grants)
    if _is_remote(words[-1]):
        there = acts(program, argv[1:], FULL, "writes files on another host", *grants)
        sends = len(remote) < len(words)
        return replace(there, needs_agent=sends, sends_files=sends)
    return writes(program, argv[1:], (words[-1], *extra), *grants)


def _is_remote(word: str) -> bool:
    """Return whether a path is remote: it has a colon before any slash."""
    return ":" in word.split("/")[0]


def _is_plain_remote(word: str) -> bool:
    if word.startswith("rsync://"):
        return bool(REMOTE_PATH.match(word.removeprefix("rsync://").replace(":", "")))
    host, _colon, path = word.partition(":")
    return bool(HOST_NAME.match(host)) and bool(REMOTE_PATH.match(path.lstrip(":")))


GRAMMARS: dict[str, Grammar] = {"ssh": ssh, "scp": scp, "rsync": rsync}
