"""Grants: what a command may use besides reading files.

`docker network processes ssh bus kube host write:/srv/app read:/home/me/app`; a minus in front
removes a grant of the tier.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sessions_app.grants import GRANTS, GrantOption, parse_grants

DOCKER, NETWORK, PROCESSES, SSH, BUS, KUBE, HOST = NAMES = GRANTS
HTTP, FILES, PROCESS_TABLE, RAW = "http", "files", "process table", "raw socket"
"""Given to single vectors: the HTTP proxy to curl and wget, to `sudo rm` and the like a sandbox of
root in which only the writable paths can be written, to a `ps` that could print environments the
process table without them, and to ping a socket of its own kind."""
PART_OF = {HTTP: NETWORK, FILES: HOST, PROCESS_TABLE: PROCESSES, RAW: NETWORK}
"""The grants of an operator that include them."""
MEANING = {
    DOCKER: "the Docker engine, through a filter that knows the tier",
    NETWORK: "the network, for programs that are understood",
    PROCESSES: "the host's processes, without their environments",
    SSH: "the operator's keys, for ssh with a command that the policy allows",
    BUS: "systemd and the journal",
    KUBE: "the operator's kubeconfig, for kubectl and helm",
    HOST: "the host itself, for what cannot work in a sandbox (sudo); Tier 1 only looks",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Grants:
    """The grants of a command, a tier or a watch."""

    names: frozenset[str] = field(default_factory=frozenset)
    writable: tuple[str, ...] = ()
    """Paths besides the working directory that may be written from Tier 2 on."""
    readable: tuple[str, ...] = ()
    """Paths that the sandbox would hide otherwise."""
    hosts: tuple[str, ...] = ()
    """Hosts to which programs of Tier 2 may send data."""

    def words(self) -> tuple[str, ...]:
        """Return the grants as an operator writes them, sorted."""
        return (
            *(name for name in NAMES if name in self.names),
            *(f"write:{path}" for path in self.writable),
            *(f"read:{path}" for path in self.readable),
            *(f"http:{host}" for host in self.hosts),
        )


def grants_for(tier_words: str = "", watch_words: str = "") -> Grants:
    """Return all grants, changed by the options of the tier, then of the watch.

    Invalid options are ignored here; they are reported where they are entered.
    """
    grants = Grants(names=frozenset(NAMES))
    for words in (tier_words, watch_words):
        for wish in parse_grants(words)[0]:
            grants = _with(grants, wish)
    return grants


def _with(grants: Grants, wish: GrantOption) -> Grants:
    names = set(grants.names)
    lists = {"write": grants.writable, "read": grants.readable, "http": grants.hosts}
    if wish.kind in lists:
        others = tuple(word for word in lists[wish.kind] if word != wish.path)
        lists[wish.kind] = others if wish.removes else (*others, wish.path)
    elif wish.removes:
        names.discard(wish.kind)
    else:
        names.add(wish.kind)
    return Grants(
        names=frozenset(names),
        writable=lists["write"],
        readable=lists["read"],
        hosts=lists["http"],
    )
