"""Grants: what a command may use besides reading files.

`docker network processes ssh bus kube host write:/srv/app read:/home/me/app`; a minus in front
removes a grant of the tier.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sessions_app.grants import GRANTS, GrantOption, parse_grants
from sessions_app.tiers import SAFE

DOCKER, NETWORK, PROCESSES, SSH, BUS, KUBE, HOST = NAMES = GRANTS
AGENT = "agent"
"""Given instead of `ssh` to commands that must not have keys: the operator's ssh-agent alone."""
MEANING = {
    DOCKER: "the Docker engine, through a filter that knows the tier",
    NETWORK: "the network, for programs that are understood",
    PROCESSES: "the host's processes, without their environments",
    SSH: "the operator's keys, for ssh, scp and rsync",
    BUS: "systemd and the journal",
    KUBE: "the operator's kubeconfig, for kubectl and helm",
    HOST: "the host itself, for what cannot work in a sandbox (sudo); never at Tier 1",
}
_LOWEST_TIER_ON_HOST = SAFE


@dataclass(frozen=True, kw_only=True, slots=True)
class Grants:
    """The grants of a command, a tier or a watch."""

    names: frozenset[str] = field(default_factory=frozenset)
    writable: tuple[str, ...] = ()
    """Paths besides the working directory that may be written from Tier 2 on."""
    readable: tuple[str, ...] = ()
    """Paths that the sandbox would hide otherwise."""

    def words(self) -> tuple[str, ...]:
        """Return the grants as an operator writes them, sorted."""
        return (
            *(name for name in NAMES if name in self.names),
            *(f"write:{path}" for path in self.writable),
            *(f"read:{path}" for path in self.readable),
        )


def default_grants(tier: int) -> Grants:
    everywhere = frozenset(NAMES) - {HOST}
    return Grants(names=everywhere | {HOST} if tier >= _LOWEST_TIER_ON_HOST else everywhere)


def grants_for(tier: int, tier_words: str = "", watch_words: str = "") -> Grants:
    """Return the default grants, changed by the options of the tier, then of the watch.

    Invalid options are ignored here; they are reported where they are entered.
    """
    grants = default_grants(tier)
    for words in (tier_words, watch_words):
        for wish in parse_grants(words)[0]:
            grants = _with(grants, wish)
    if tier < _LOWEST_TIER_ON_HOST:
        grants = Grants(
            names=grants.names - {HOST}, writable=grants.writable, readable=grants.readable
        )
    return grants


def _with(grants: Grants, wish: GrantOption) -> Grants:
    names, paths = set(grants.names), {"write": grants.writable, "read": grants.readable}
    if wish.kind in paths:
        others = tuple(path for path in paths[wish.kind] if path != wish.path)
        paths[wish.kind] = others if wish.removes else (*others, wish.path)
    elif wish.removes:
        names.discard(wish.kind)
    else:
        names.add(wish.kind)
    return Grants(names=frozenset(names), writable=paths["write"], readable=paths["read"])
