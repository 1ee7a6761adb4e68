from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escalation.sandbox.command_runner import NotACommand, read_shell_text
from tests.tables import each_row

# As the CLIs wrote them for real; only the paths are shortened.
OLDEST = (
    "source /c/shell-snapshots/snapshot-bash-1-w2b0m6.sh && { shopt -u extglob || setopt "
    "NO_EXTENDED_GLOB; } >/dev/null 2>&1 || true && "
)
OLDER = (
    "source /c/shell-snapshots/snapshot-bash-1-cv20dc.sh 2>/dev/null || true && { shopt -u extglob "
    "|| setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL; } >/dev/null 2>&1 || true && "
)
BUNDLED = (
    "source /c/shell-snapshots/snapshot-bash-1-fachxy.sh 2>/dev/null || true && { \\builtin shopt "
    "-u extglob || \\builtin setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL NO_BRACE_CCL "
    "NO_MAGIC_EQUAL_SUBST; } >/dev/null 2>&1 || true && { \\builtin unalias -- 'which'; \\builtin "
    "unset -f -- 'which'; } >/dev/null 2>&1 || true && "
)
END = " && pwd -P >| /t/claude-b3fe-cwd"
HEREDOC = "cat <<'X'\nhello ' $y\nX"
QUOTED_HEREDOC = "eval 'cat <<'\"'\"'X'\"'\"'\nhello '\"'\"' $y\nX'"
QUOTES = "echo 'it'\"'\"'s' \"a  b\" && cd /usr"
REAL = {
    "2.0.77 in double quotes": (
        OLDEST + 'eval "echo \'it\'\\"\'\\"\'s\' \\"a  b\\" && cd /usr" \\< /dev/null' + END,
        QUOTES,
    ),
    "2.0.77 in single quotes": (
        OLDEST + "eval 'sleep 1 & echo bg; false' \\< /dev/null" + END,
        "sleep 1 & echo bg; false",
    ),
    "2.0.77 with a pipe, which it writes anew": (
        OLDEST + "eval 'echo a < /dev/null | wc -c'" + END,
        "echo a < /dev/null | wc -c",
    ),
    "2.0.77 with escapes": (
        OLDEST + "eval \"yes < /dev/null | head -c 9 ; echo 'é \\\\ \\$HOME' '' ''\"" + END,
        "yes < /dev/null | head -c 9 ; echo 'é \\ $HOME' '' ''",
    ),
    "2.0.77 with a here-document": (OLDEST + QUOTED_HEREDOC + END, HEREDOC),
    "2.1.197": (
        OLDER
        + "eval 'echo '\"'\"'it'\"'\"'\"'\"'\"'\"'\"'\"'s'\"'\"' \"a  b\" && cd /usr' < /dev/null"
        + END,
        QUOTES,
    ),
    "2.1.197 with a here-document": (OLDER + QUOTED_HEREDOC + END, HEREDOC),
    "bundled": (
        BUNDLED
        + "eval 'yes | head -c 9 > /dev/null; echo \"é \\\\ \\$HOME\" $0 $#' < /dev/null"
        + END,
        'yes | head -c 9 > /dev/null; echo "é \\\\ \\$HOME" $0 $#',
    ),
    "bundled with a command of bash 4": (
        "{ case \"${BASH_VERSINFO-}\" in '2'|'3') \\builtin printf '%s\\n' 'TOO_OLD='"
        '"${BASH_VERSION-}" >&2; \\builtin exit 126; \\exit 126;; esac; } && '
        + BUNDLED
        + "eval 'declare -A n; echo ${#n[@]}'"
        + END,
        "declare -A n; echo ${#n[@]}",
    ),
    "bundled with one word": (BUNDLED + "eval ls \\< /dev/null" + END, "ls"),
}


@each_row(("text", "command"), REAL.values(), ids=REAL)
def test_the_command_and_its_directory_file_are_found_in_the_text_of_a_real_cli(text, command):
    found = read_shell_text(text)

    assert (found.command, found.directory_file) == (command, "/t/claude-b3fe-cwd")


@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1))
def test_any_command_comes_out_as_it_went_in(command):
    text = f"{OLDER}eval {shlex.quote(command)} < /dev/null{END}"

    assert read_shell_text(text).command == command


DOUBLE_QUOTED = ['a\\$b \\` \\" \\\\ \\! \\x', "line\\\nend", "plain 'single' é", "\\\\\\$"]


@pytest.mark.parametrize("inside", DOUBLE_QUOTED)
def test_double_quotes_are_read_as_bash_reads_them(inside):
    bash = subprocess.run(
        ["/bin/bash", "-c", f'printf %s "{inside}"'], capture_output=True, text=True, check=True
    )

    assert read_shell_text(f'eval "{inside}"').command == bash.stdout


def test_the_first_eval_counts_and_not_one_in_the_command():
    assert read_shell_text("source x && eval 'eval ls' < /dev/null").command == "eval ls"


def test_an_eval_in_a_quoted_path_is_no_eval():
    assert read_shell_text("source '/c/eval /x' && eval 'ls'").command == "ls"


def test_a_word_that_only_begins_or_ends_with_eval_is_none():
    assert read_shell_text("source /c/medieval evals && eval 'ls'").command == "ls"


def test_a_directory_file_may_be_quoted():
    text = "eval 'ls' < /dev/null && pwd -P >| '/t/my dir/claude-1-cwd'"

    assert read_shell_text(text).directory_file == "/t/my dir/claude-1-cwd"


@each_row(
    "end", ["", " < /dev/null", " && something else", " && pwd -P >| /t/$x", " && pwd -P >| /t/a b"]
)
def test_an_end_that_is_not_known_names_no_file(end):
    found = read_shell_text(f"eval 'ls'{end}")

    assert (found.command, found.directory_file) == ("ls", "")


@each_row(
    "text",
    [
        *("", "ls", "node /srv/hook.js", "eval", "eval ", "eval ; ls", "eval 'open", 'eval "open'),
        *('eval "$x"', "eval $x", 'eval "`x`"', "eval `x`", "eval a\\", "eval a*", "source 'open"),
        "evaluate 'ls'",
    ],
)
def test_a_text_without_a_plain_command_is_none(text):
    with pytest.raises(NotACommand):
        read_shell_text(text)
