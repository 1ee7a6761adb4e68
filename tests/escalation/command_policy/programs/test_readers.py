"""Readers, filters and archives: reading is free, and every option that starts a program is not."""

from __future__ import annotations

from escalation.command_policy.understanding import LOOK, SAFE
from tests.escalation.command_policy.programs.tables import Row, assert_is, understood
from tests.tables import each_row

ROWS = [
    Row("cat README.md $computed", "cat", LOOK),
    Row("tail -f app.log", "tail", LOOK),
    Row("grep -rn error .", "grep", LOOK),
    Row("jq -r '.a | .b' f", "jq", LOOK),
    Row("sort -k2 -nr data.csv", "sort", LOOK),
    Row("sort -o data.csv data.csv", "sort", SAFE, "", ("data.csv",)),
    Row("sort --output=/tmp/x data.csv", "sort", LOOK, "", ("/tmp/x",)),
    Row("uniq -c", "uniq", LOOK),
    Row("uniq in out", "uniq", SAFE, "", ("out",)),
    Row("date -u +%F", "date", LOOK),
    Row("less -R f", "less", LOOK),
    Row("rg -n --hidden x", "rg", LOOK),
    Row("yq -r .a f", "yq", LOOK),
    Row("yq -i .a=1 f", "yq", SAFE, "", ("f",)),
    Row("python3 -m json.tool", "python3 -m json.tool", LOOK),
    Row("python3 -m json.tool in out", "python3 -m json.tool", SAFE, "", ("out",)),
    Row("awk '{print $1}' f", "awk", LOOK),
    Row("awk -F, '$3 > 5 {print $1}' f", "awk", LOOK),
    Row("awk '/error|warning/ {n++} END {print n}' f", "awk", LOOK),
    Row("awk '$1 ~ /a|b/ || $2' f", "awk", LOOK),
    Row("sed -n 1,5p f", "sed", LOOK),
    Row("sed 's/a/b/g; /x/d' f", "sed", LOOK),
    Row("sed -E 's|/a|/b|' f", "sed", LOOK),
    Row("sed -n '/start/,/end/{p;q}' f", "sed", LOOK),
    Row("sed -i 's/a/b/' f g", "sed -i", SAFE, "", ("f", "g")),
    Row("sed -i.bak -e s/a/b/ f", "sed -i", SAFE, "", ("f",)),
    Row("tar -tzf a.tgz", "tar", LOOK),
    Row("tar tzf a.tgz", "tar", LOOK),
    Row("tar xzf a.tgz", "tar -x", SAFE, "", (".",)),
    Row("tar -xf a.tar -C /tmp/a", "tar -x", LOOK, "", ("/tmp/a",)),
    Row("tar -xOf a.tar f", "tar", LOOK),
    Row("tar czf b.tgz src", "tar -c", SAFE, "", ("b.tgz",)),
    Row("unzip -l a.zip", "unzip", LOOK),
    Row("unzip a.zip -d out", "unzip", SAFE, "", ("out",)),
    Row("zip -r a.zip src", "zip", SAFE, "", ("a.zip",)),
    Row("gzip -dc a.gz", "gzip", LOOK),
    Row("gzip a", "gzip", SAFE, "", ("a",)),
]


@each_row("row", ROWS, ids=lambda row: row.command)
def test_reading_looks_and_writing_names_its_place(row):
    assert_is(row)


@each_row(
    "command",
    [
        "sort --compress-program=evil f",
        "sort --compress-prog=evil -S1 f",
        "sort $computed",
        "rg --pre evil x",
        "rg --hostname-bin evil x",
        "less '+!evil' f",
        "less -o out f",
        "man -P evil ls",
        "man --pager=evil ls",
        "man -H evil ls",
        "date -s 10:00",
        "date 01010000",
        "file -C -m x",
        "python3 -c 'print(1)'",
        "python3 script.py",
        "pidstat -e evil",
        "diff3 --diff-program=evil a b c",
        "hostname evil",
        "sensors -s",
        "awk 'BEGIN {system(\"evil\")}'",
        "awk '{print | \"evil\"}' f",
        "awk '{\"evil\" | getline x}' f",
        "awk '{print > \"file\"}' f",
        "awk '$1 /2 {print | c} /x/' -v c=sh",
        'awk \'/"/ {print | "sh"} /"/\' f',
        "awk -f evil.awk f",
        "awk $computed f",
        "gawk '@load \"filefuncs\"' f",
        "gawk -i evil '{print}' f",
        "gawk 'BEGIN {print |& \"/inet/tcp/0/x/80\"}'",
        "sed '1e evil' f",
        "sed e f",
        "sed 's/a/b/e' f",
        "sed 's/a/b/w out' f",
        "sed -n '/x/w out' f",
        "sed 'r /etc/passwd' f",
        "sed -f evil f",
        "sed --expr=1e f",
        "sed 's/[/]/x/;e evil;s/]/x/' f",
        "sed $computed f",
        "sed -n 1p $computed",
        "sed 'a text\\' f",
        "tar -cf x --checkpoint=1 --checkpoint-action=exec=evil f",
        "tar -xf x --to-command=evil",
        "tar -I evil -xf x",
        "tar --use-compress-program=evil -xf x",
        "tar -cf elsewhere:x --rsh-command=evil f",
        "tar -cf elsewhere:x f",
        "tar -cf x -T list",
        "tar fx -I",
        "zip x.zip f -T -TT evil",
        "zip x.zip f -T --unzip-command evil",
    ],
)
def test_an_option_that_may_start_a_program_is_not_understood(command):
    assert understood(command) is None
