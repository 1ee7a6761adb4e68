"""Package managers; changes need the host."""

from __future__ import annotations

from collections.abc import Callable

from escalation.command_policy.grants import HOST
from escalation.command_policy.programs.options import (
    Grammar,
    acts,
    literal,
    looks,
    names,
    read,
    readers,
)
from escalation.command_policy.understanding import FULL, Understanding, Word

WHY = "changes what is installed"
DPKG_LOOKS = names("""
    -l -s -L -S -p -V -C -I -c --list --status --listfiles --search --verify --audit
    --get-selections --print-architecture --version --compare-versions --info --contents
""")
APT_LOOKS = names("list show search policy depends rdepends changelog showsrc madison")
APT = """
    -y -q -qq -s -V -a -f -v --yes --assume-yes --quiet --simulate --dry-run --installed
    --upgradable --upgradeable --all-versions --no-install-recommends --only-upgrade
    --fix-broken --reinstall --purge --version --manual-installed --names-only -n
"""
APT_CHANGES = names("""
    install upgrade full-upgrade dist-upgrade remove purge autoremove update clean autoclean
    reinstall build-dep mark
""")


def apt(argv: tuple[Word, ...]) -> Understanding | None:
    """Read apt without -o and -c (settings may name programs) and without package files."""
    line = read(argv[1:], APT)
    words = literal(line.operands) if line else None
    if line is None or words is None or line.unsure:
        return None
    if not words:
        return looks(argv) if line.has("--version", "-v") else None
    verb, packages = words[0], words[1:]
    simulated = line.has("-s", "--simulate", "--dry-run")
    if verb in APT_LOOKS or (simulated and verb in APT_CHANGES):
        return looks(argv)
    if verb not in APT_CHANGES or any(map(_is_a_file, packages)):
        return None
    return acts(f"{argv[0]} {verb}", packages, FULL, WHY, HOST)


def _is_a_file(package: str) -> bool:
    return "/" in package or package.endswith((".deb", ".rpm", ".apk", ".snap"))


def dpkg(argv: tuple[Word, ...]) -> Understanding | None:
    words = literal(argv[1:])
    if words and words[0] in DPKG_LOOKS and not any(_is_dpkg_option(word) for word in words[1:]):
        return looks(argv)
    if words and words[0] in ("-r", "-P", "--configure", "--remove", "--purge"):
        return acts("dpkg", words, FULL, WHY, HOST)
    return None


def _is_dpkg_option(word: str) -> bool:
    return word.startswith("-")


ANSWERS = names("""
    -y -q -v -a -i --assumeyes --noconfirm --yes --now --quiet --all --installed --available
    --upgrades --security --verbose --color=never
""")
"""Options without files: a configuration file could name programs."""
HISTORY_CHANGES = {
    ("history", verb) for verb in ("undo", "redo", "rollback", "userinstalled", "replay", "store")
}


def by_verb(looking: str, changing: str) -> Grammar:
    """Return a grammar for programs whose first word is the verb."""
    look, change = frozenset(looking.split()), frozenset(changing.split())

    def grammar(argv: tuple[Word, ...]) -> Understanding | None:
        words = literal(argv[1:])
        if not words:
            return None
        if any(word.startswith("-") and word not in ANSWERS for word in words[1:]):
            return None
        if words[0] in look:
            return looks(argv) if words[:2] not in HISTORY_CHANGES else None
        if words[0] in change and not any(map(_is_a_file, words[1:])):
            return acts(f"{argv[0]} {words[0]}", words[1:], FULL, WHY, HOST)
        return None

    return grammar


def unseen(looking: str) -> Callable[[tuple[Word, ...]], Understanding | None]:
    """Return a grammar for package managers of languages, which may run code of files."""
    look = frozenset(looking.split())

    def grammar(argv: tuple[Word, ...]) -> Understanding | None:
        words = literal(argv[1:])
        if not words or words[0] not in look:
            return None
        return Understanding(
            action=f"{argv[0]} {words[0]}", arguments=words[1:], runs_unseen=words[0][:2] != "--"
        )

    return grammar


def rpm(argv: tuple[Word, ...]) -> Understanding | None:
    """Read queries of rpm; `--eval`, `--define` and `--pipe` can run programs."""
    words = literal(argv[1:])
    if not words or not words[0].startswith(("-q", "--query")):
        return None
    odd = ("--eval", "--define", "--pipe", "-D", "-E", "--load", "--rcfile", "--macros", "--import")
    return None if any(word.startswith(odd) or "%(" in word for word in words) else looks(argv)


DNF = (
    "list info search repolist provides history check-update repoquery",
    "install upgrade update \
    remove downgrade reinstall autoremove clean makecache",
)
GRAMMARS: dict[str, Grammar] = {
    **dict.fromkeys(("apt", "apt-get"), apt),
    "dpkg": dpkg,
    "rpm": rpm,
    **readers("dpkg-query"),
    "apt-cache": by_verb("policy show search depends rdepends madison pkgnames stats showpkg", ""),
    "apt-mark": by_verb("showhold showmanual showauto", "hold unhold auto manual"),
    **dict.fromkeys(("dnf", "yum"), by_verb(*DNF)),
    "snap": by_verb(
        "list info find changes version", "install remove refresh revert enable disable"
    ),
    "pacman": by_verb("-Q -Qi -Ql -Qs -Ss -Si", "-S -Sy -Syu -R -Rs"),
    "apk": by_verb("info list search version policy", "add del upgrade update"),
    **dict.fromkeys(("pip", "pip3"), unseen("list show freeze check --version")),
    "npm": unseen("ls list outdated view --version"),
}
