"""Markdown of a model is rendered, and its HTML is not."""

from __future__ import annotations

from sessions_app.text import rendered
from tests.tables import each_row


def test_it_renders_lists_code_and_emphasis():
    html = rendered("# Why\n\nThe **disk** is full:\n\n- `/var` 100 %\n\n```\ndf -h\n```\n")

    assert "<strong>disk</strong>" in html
    assert "<li><code>/var</code> 100 %</li>" in html
    assert "<pre><code>df -h" in html
    assert "<h3>Why</h3>" in html


def test_a_table_is_a_table():
    assert "<td>web</td>" in rendered("| name |\n| --- |\n| web |\n")


@each_row(
    "hostile",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "text <b onclick=x>bold</b>",
        "![pixel](https://evil.example/x.png)",
        "[click](javascript:alert(1))",
        "[click](JaVaScRiPt:alert(1))",
        "[click](data:text/html;base64,PHNjcmlwdD4=)",
        "[click](//evil.example)",
        "<https://ok.example/> <javascript:alert(1)>",
        "[x]: javascript:alert(1)\n\n[x]",
        '[a](https://ok.example "\\" onmouseover=\\"alert(1)")',
    ],
)
def test_html_and_scripts_are_escaped(hostile):
    html = rendered(hostile)

    assert "<script" not in html
    assert "<img" not in html
    assert "<b " not in html
    assert 'href="javascript' not in html.lower()
    assert 'href="data' not in html
    assert 'href="//' not in html
    assert '" onmouseover' not in html


def test_a_web_link_is_kept_without_a_referrer():
    html = rendered("[docs](https://ok.example/a?b=c)")

    assert html == (
        '<p><a href="https://ok.example/a?b=c" rel="noopener noreferrer nofollow">docs</a></p>\n'
    )


def test_direction_marks_are_shown():
    assert "\u202e" not in rendered("harmless \u202etxt.exe")


def test_a_megabyte_without_a_space_is_shortened():
    assert len(rendered("x" * 1_000_000)) < 210_000


def test_an_empty_text_is_empty():
    assert rendered("") == ""
