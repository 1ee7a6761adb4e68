"""Programs that write files, and the /tmp of the sandbox."""

from __future__ import annotations

import pytest

from escalation.command_policy.understanding import LOOK, NEVER, SAFE
from tests.escalation.command_policy.programs.tables import Row, assert_is, understood
from tests.tables import each_row

ROWS = [
    Row("rm -rf build", "rm", SAFE, "", ("build",)),
    Row("rm /tmp/x", "rm", LOOK, "", ("/tmp/x",)),
    Row("rm /tmp/../etc/passwd", "rm", SAFE, "", ("/tmp/../etc/passwd",)),
    Row("rm -f $computed", "rm", SAFE, "", (None,)),
    Row("rm -rf /", "rm", NEVER, "", ("/",)),
    Row("rm -r --no-preserve-root //", "rm", NEVER, "", ("//",)),
    Row("rm -rf /etc/", "rm", NEVER, "", ("/etc/",)),
    Row("chmod -R 777 /", "chmod", NEVER, "", ("/",)),
    Row("chmod 644 f g", "chmod", SAFE, "", ("f", "g")),
    Row("chown --reference=x f", "chown", SAFE, "", ("f",)),
    Row("cp a b", "cp", SAFE, "", ("b",)),
    Row("cp a /tmp/b", "cp", LOOK, "", ("/tmp/b",)),
    Row("cp -t dir a b", "cp", SAFE, "", ("dir",)),
    Row("mv a /tmp/b", "mv", SAFE, "", ("a", "/tmp/b")),
    Row("ln -s a b", "ln", SAFE, "", ("b",)),
    Row("tee -a out", "tee", SAFE, "", ("out",)),
    Row("tee /dev/null", "tee", LOOK),
    Row("touch f", "touch", SAFE, "", ("f",)),
    Row("mkdir -p /tmp/a/b", "mkdir", LOOK, "", ("/tmp/a/b",)),
    Row("truncate -s 0 app.log", "truncate", SAFE, "", ("app.log",)),
    Row("dd if=/dev/zero of=f bs=1M", "dd", SAFE, "", ("f",)),
    Row("dd if=f of=/dev/sda", "dd", NEVER, "", ("/dev/sda",)),
    Row("dd if=f of=/dev/null", "dd", LOOK),
    Row("patch -p1 -d src -i x.patch", "patch", SAFE, "", ("src",)),
    Row("patch --dry-run -i x.patch", "patch", LOOK),
    Row("mktemp", "mktemp", LOOK),
    Row("mktemp -p /srv", "mktemp", SAFE, "", ("/srv",)),
]


@each_row("row", ROWS, ids=lambda row: row.command)
def test_a_writer_names_its_places(row):
    assert_is(row)


@pytest.mark.parametrize(
    "command",
    ["install -s --strip-program=evil a b", "split --filter=evil f", "patch -e f", "dd $computed"],
)
def test_what_starts_a_program_is_not_understood(command):
    assert understood(command) is None
