"""Text that is not ours, made harmless before it stands in a prompt.

In a prompt, `/word` at the beginning is a command to the CLI and `@file` pulls a file in. What is
data, not a wish of the operator's, also stands between two lines that nobody could have guessed.
"""

from __future__ import annotations

import re
import secrets

# The CLI looks for a mention after white space and after 。、？！; newer versions may look further.
# So an @ stays as it is only where it is part of a name, as in an address: ops@example.org.
MENTION = re.compile(r"(?<![\w.%+›-])@+(?=\S)")
COMMAND = re.compile(r"(?m)^/(?=\w)")


def disarmed(text: str) -> str:
    """The same words, which the CLI cannot take for a command or a file to pull in."""
    without_mentions = MENTION.sub(lambda found: "@ " * len(found[0]), text.strip())
    return COMMAND.sub(" /", without_mentions)


def new_token() -> str:
    """New for each prompt: no output of a program can know it and close the fence."""
    return secrets.token_hex(8)
