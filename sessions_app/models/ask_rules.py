"""Rules that make a command wait for a person, in the CLI's own words: `Bash(docker restart:*)`."""

from __future__ import annotations

import re

_RULE = re.compile(r"Bash\(\s*([^()]*?)\s*\)")
_BETWEEN = re.compile(r"[\s,]*")


def read_ask_rules(words: str) -> tuple[str, ...]:
    """Separated by blanks or commas. ValueError names what is no such rule."""
    rest = _BETWEEN.sub("", _RULE.sub("", words)) if words.strip() else ""
    empty = [rule for rule in _RULE.finditer(words) if not rule[1].strip(":* ")]
    if rest or empty:
        wrong = rest or empty[0][0]
        raise ValueError(f"{wrong!r} is no rule like Bash(docker restart:*)")
    return tuple(dict.fromkeys(f"Bash({rule[1]})" for rule in _RULE.finditer(words)))
