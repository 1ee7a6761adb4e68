"""Markdown that a model wrote, as HTML that cannot do anything.

No HTML of its own passes, no image is loaded, and a link leads to http or https alone. What acts on
its reader without being seen is marked before (`plain_text`).
"""

from __future__ import annotations

from functools import cache

from django.utils.safestring import SafeString
from markdown_it import MarkdownIt

from sessions_app.reading.plain_text import clean, cut

LONGEST_TEXT = 200_000
SCHEMES = ("http://", "https://")
RENDERED_HEADINGS = {"h1": "h3", "h2": "h4", "h3": "h5"}
"""It stands in a card, below the headings of the page."""


def rendered(text: str) -> SafeString:
    html: str = _markdown().render(clean(cut(text, LONGEST_TEXT)).strip())
    return SafeString(html)  # the renderer escapes all text, and takes no HTML


@cache
def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "linkify": False})
    markdown.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    markdown.validateLink = lambda url: url.lower().startswith(SCHEMES)  # type: ignore[method-assign]
    markdown.core.ruler.push("below_the_page", _below_the_page)
    return markdown


def _below_the_page(state: object) -> None:
    """Headings go down, and links say that they come from outside."""
    for token in getattr(state, "tokens", ()):
        token.tag = RENDERED_HEADINGS.get(token.tag, token.tag)
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("rel", "noopener noreferrer nofollow")
