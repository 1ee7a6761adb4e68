"""ssh, and what other programs ask of it: rsync, scp, sftp and git run `ssh HOST …` themselves.

There is no sandbox on the other host. So ssh is understood only with a command, which is read like
any other, and with options that start nothing here and forward nothing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import replace

from escalation.command_policy.grants import SSH
from escalation.command_policy.plain_shell import read_commands
from escalation.command_policy.programs.options import Grammar, Line, acts, read, require
from escalation.command_policy.understanding import (
    FULL,
    LOOK,
    Argv,
    NotUnderstood,
    Understanding,
)

# Left out: -F (a configuration that may name programs), -L -R -D -w -W (tunnels), -A (the agent),
# -I (a library), -S -M -O (shared connections), -E (a log file), -f -N (no command).
OPTIONS = "-4 -6 -a -C -G -k -n -q -s -t -T -v -x -p= -l= -J= -c= -m= -o= -i="
KEPT = frozenset({"-4", "-6", "-C", "-n", "-q", "-v", "-p", "-l", "-J", "-c", "-m", "-t"})
FORCED = (
    *("BatchMode=yes", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes"),
    *("PermitLocalCommand=no", "StrictHostKeyChecking=yes", "UpdateHostKeys=no"),
    *("ControlMaster=no", "ControlPath=none"),
)
"""Settings that come first; ssh takes the first value of each."""
SETTING = re.compile(
    r"(?:ConnectTimeout|ConnectionAttempts|ServerAliveInterval|ServerAliveCountMax|LogLevel|Port"
    r"|User|AddressFamily|TCPKeepAlive|Compression|HostKeyAlgorithms|PubkeyAccepted(?:KeyTypes"
    r"|Algorithms)|KexAlgorithms|Ciphers|MACs|PreferredAuthentications|SendEnv(?=.GIT_PROTOCOL\Z))"
    r"[= ][\w+][\w.,:@+-]*",
    re.IGNORECASE,
)
IGNORED = re.compile(
    r"(?:BatchMode|StrictHostKeyChecking|PasswordAuthentication|IdentitiesOnly|CheckHostIP"
    r"|HashKnownHosts|VisualHostKey|NumberOfPasswordPrompts|ClearAllForwardings)[= ][\w-]+"
    r"|(?:ForwardAgent|ForwardX11|PermitLocalCommand|UpdateHostKeys|ControlMaster|RequestTTY"
    r"|ForwardX11Trusted|Tunnel)[= ]no|(?:ControlPath|RemoteCommand)[= ]none"
    r"|(?:User|Global)KnownHostsFile[= ]/dev/null",
    re.IGNORECASE,
)
"""Settings that change nothing, or nothing against those that come first: they are left out."""
USER_NAME = re.compile(r"\w[\w.+-]*")
"""The operator's configuration may pass the name to a shell (`ProxyCommand … %r@jump`)."""
HOST_NAME = re.compile(r"(?:\w[\w.+-]*@)?(?:\w[\w.-]*|\[[0-9a-fA-F:]+\])")
JUMPS = re.compile(r"(?:\w[\w.+-]*@)?\w[\w.-]*(?::\d+)?(?:,(?:\w[\w.+-]*@)?\w[\w.-]*(?::\d+)?)*")


def ssh(argv: Argv) -> Understanding:
    line = read(argv[1:], OPTIONS, to_operand=True)
    host, words = line.operands[:1], line.operands[1:]
    if not host:
        raise NotUnderstood("no host")
    require(host, HOST_NAME)
    if not line.terminated:
        behind = read(words, OPTIONS, to_operand=True)
        line = Line((*line.options, *behind.options), (*host, *behind.operands), True)
        words = behind.operands
    if line.has("-i"):
        raise NotUnderstood("the option -i: leave it out, the keys are in an agent")
    require(line.values("-l"), USER_NAME)
    require(line.values("-p"), re.compile(r"\d{1,5}"))
    require(line.values("-c", "-m"), re.compile(r"[\w.,@-]+"))
    require(line.values("-J"), JUMPS)
    executed = ("ssh", *_forced(line), *_kept(line), "--", *host, *words)
    found = acts("ssh", (*host, *words), LOOK, "", SSH)
    if line.has("-G") and not words:
        return replace(found, argv=("ssh", "-G", *executed[1:]))
    if line.has("-t"):
        found = replace(found, level=FULL, why="opens a terminal")
    if line.has("-s"):
        if words != ("sftp",):
            raise NotUnderstood("the option -s without sftp")
        why = "may write any file there; `ssh HOST cat FILE` reads one"
        return replace(found, level=FULL, why=why, argv=executed)
    if not words:
        raise NotUnderstood("a session: give a command")
    inner = read_commands(" ".join(words))
    plain = not line.has("-p", "-o", "-J")
    return replace(found, argv=executed, inner=inner, elsewhere=True, host=host[0] if plain else "")


def _forced(line: Line) -> Argv:
    terminal = () if line.has("-t") else ("-T",)
    return (*terminal, *(word for setting in FORCED for word in ("-o", setting)))


def _kept(line: Line) -> Argv:
    """Return the options in one spelling."""
    words: list[str] = []
    for name, value in line.options:
        if name == "-o":
            setting = re.sub(r"\s*=\s*|\s+", "=", value.strip(), count=1)
            if not SETTING.fullmatch(setting) and not IGNORED.fullmatch(setting):
                raise NotUnderstood(f"the setting {value}")
            words += ["-o", setting] if SETTING.fullmatch(setting) else []
        elif name in KEPT:
            words += [name, value] if value else [name]
    if line.has("-s"):
        words.append("-s")
    return tuple(words)


# What the far side is asked to run for rsync, scp, git and borg.

RSYNC_FLAGS = re.compile(r"-[vlogDtprzcnuxHAXSqiLkWmbdROJIhyNUPKE0]*(?:e\d*\.\w*)?")
"""Without `s`: it hides the words that follow."""
RSYNC_OPTIONS = re.compile(
    r"--(?:numeric-ids|delete(?:-\w+)?|partial|inplace|append(?:-verify)?|list-only|existing"
    r"|ignore-(?:existing|errors|times)|size-only|no-\w[\w-]*|one-file-system|safe-links|stats"
    r"|(?:bwlimit|timeout|max-size|min-size|modify-window|compress-level|checksum-choice"
    r"|compress-choice|info|debug|log-format|chmod|usermap|groupmap|suffix)=[\w.,:+=%-]+)"
)


KEYLESS = re.compile(r"(?:/var/log|/var/www|/srv|/opt|/data|/mnt|/usr)(?:/.*)?", re.DOTALL)
"""Directories that may be read as a whole; others have keys, and a relative one may be any."""


def reads_whole(paths: Iterable[str]) -> bool:
    """Return whether a directory is read as a whole that may hold keys."""
    return not all(KEYLESS.fullmatch(posixpath.normpath(path)) for path in paths)


def rsync(argv: Argv) -> Understanding:
    if argv[1:2] != ("--server",):
        raise NotUnderstood("rsync that is started there: start it here")
    words = tuple(word for word in argv[2:] if word != "--sender")
    paths = words[words.index(".") + 1 :] if "." in words else ()
    for word in words[: len(words) - len(paths) - 1]:
        if not RSYNC_FLAGS.fullmatch(word) and not RSYNC_OPTIONS.fullmatch(word):
            raise NotUnderstood(f"the option {word}")
    if not paths or any(path.startswith("-") for path in paths):
        raise NotUnderstood("no path")
    recursive = any(re.match(r"-\w*?r\w*?(?:e|\Z)", word) for word in words)
    return _copy("rsync", argv, paths, sends="--sender" in argv, recursive=recursive)


def scp(argv: Argv) -> Understanding:
    line = read(argv[1:], "-f -t -r -p -d -q -v")
    if line.has("-f") == line.has("-t"):
        raise NotUnderstood("scp that is started there: start it here")
    return _copy("scp", argv, line.operands, sends=line.has("-f"), recursive=line.has("-r"))


def _copy(program: str, argv: Argv, paths: Argv, *, sends: bool, recursive: bool) -> Understanding:
    if not sends:
        return replace(acts(program, argv[1:], FULL, "writes files there"), writes=paths)
    if recursive and reads_whole(paths):
        return acts(program, argv[1:], FULL, "reads a whole directory, which may hold keys")
    return acts(program, argv[1:], LOOK, "")


def pack(argv: Argv) -> Understanding:
    """Read what git asks for: `git-upload-pack 'shop.git'` is a fetch, the other a push."""
    line = read(argv[1:], "--strict --timeout= --stateless-rpc --http-backend-info-refs")
    if len(line.operands) != 1:
        raise NotUnderstood("no repository")
    if argv[0] == "git-receive-pack":
        return acts("git push", line.operands, FULL, "publishes commits")
    return acts("git fetch", line.operands, LOOK, "")


def borg(argv: Argv) -> Understanding:
    if argv[1:2] != ("serve",):
        raise NotUnderstood(f"`{' '.join(argv[1:2])}`")
    return acts("borg serve", argv[2:], FULL, "writes backups there")


GRAMMARS: dict[str, Grammar] = {"ssh": ssh}
ELSEWHERE: dict[str, Grammar] = {
    "rsync": rsync,
    "scp": scp,
    **dict.fromkeys(("git-upload-pack", "git-upload-archive", "git-receive-pack"), pack),
    "borg": borg,
}
