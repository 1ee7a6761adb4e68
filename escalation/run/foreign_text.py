"""Text that is not ours, made harmless before it stands in a prompt.

In a prompt, `/word` at the beginning is a command to the CLI and `@file` pulls a file in. What is
data, not a wish of the operator's, also stands between two lines that nobody could have guessed.
"""

from __future__ import annotations

import re
import secrets

# Where the CLI looks for a mention (after white space, after 。、？！) differs by version, and
# so does what it takes for white space. So the rule asks for nothing before the @, and after it for
# white space that nobody takes for the beginning of a name.
MENTION = re.compile(r"@(?![ \t\n])")
COMMAND = re.compile(r"(?m)^/(?=\w)")


def disarmed(text: str) -> str:
    """The same words, which the CLI cannot take for a command or a file to pull in.

    An address gets its space too (`ops@ example.org`): the prompts tell the model so.
    """
    return COMMAND.sub(" /", MENTION.sub("@ ", text.strip()))


def new_token() -> str:
    """New for each prompt: no output of a program can know it and close the fence."""
    return secrets.token_hex(8)
