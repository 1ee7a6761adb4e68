"""Archives and compression: listing reads, unpacking and packing write."""

from __future__ import annotations

from escalation.command_policy.programs.options import Grammar, Line, looks, names, read, writes
from escalation.command_policy.understanding import Understanding, Word

# Left out: whatever names a program (-I, --to-command, --checkpoint-action, --rsh-command …),
# and -T, whose file may hold such options.
TAR = """
    -t -x -c -r -u -d -f= -v -z -j -J -a -p -k -O -C= -h -m -n -W -w -X= --list --extract --get
    --create --append --update --diff --compare --file= --verbose --gzip --gunzip --bzip2 --xz
    --zstd --auto-compress --directory= --exclude= --exclude-from= --strip-components= --wildcards
    --to-stdout --no-same-owner --same-owner --numeric-owner --keep-old-files --dereference
    --transform= --one-file-system --totals --force-local --no-recursion --full-time
"""
UNZIP = "-l -v -t -p -Z -Z1 -z -q -qq -o -n -j -d= -x= -u -f -a -C -L"
ZIP = "-r -q -v -j -u -m -y -X -D -0 -1 -2 -3 -4 -5 -6 -7 -8 -9 -x= -i= --recurse-paths --quiet"
COMPRESS = """
    -c -d -k -l -t -v -q -f -n -N -r -h -V -1 -2 -3 -4 -5 -6 -7 -8 -9 -z -T= -S= --stdout
    --to-stdout --decompress --uncompress --keep --list --test --verbose --quiet --force --fast
    --best --recursive --no-name --name --compress --threads= --suffix= --extreme -e
"""


def tar(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(_with_dash(argv[1:]), TAR)
    if line is None or line.unsure:
        return None
    archives = line.values("-f", "--file")
    if any(archive is None or ":" in archive for archive in archives):
        return None
    if line.has("-t", "--list", "-d", "--diff", "--compare"):
        return looks(argv)
    if line.has("-x", "--extract", "--get"):
        if line.has("-O", "--to-stdout"):
            return looks(argv)
        return writes("tar -x", argv[1:], line.values("-C", "--directory") or (".",))
    return writes("tar -c", argv[1:], archives)


def _with_dash(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Read `tar xzf a.tar` as `tar -xzf a.tar`, if only the last letter takes a value."""
    first = words[0] if words else None
    if first is None or first.startswith("-"):
        return words
    takers = sum(first.count(letter) for letter in "fCX")
    if takers > 1 or (takers and first[-1] not in "fCX"):
        return ("--unreadable",)
    return (f"-{first}", *words[1:])


def unzip(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], UNZIP)
    if line is None or line.unsure:
        return None
    if line.has("-l", "-v", "-t", "-p", "-Z", "-Z1", "-z"):
        return looks(argv)
    return writes("unzip", argv[1:], line.values("-d") or (".",))


def zips(argv: tuple[Word, ...]) -> Understanding | None:
    """Read zip; `-T -TT`, which runs any program, is not among the known options."""
    line = read(argv[1:], ZIP)
    if line is None or line.unsure or not line.operands:
        return None
    return writes("zip", argv[1:], line.operands if line.has("-m") else line.operands[:1])


def compresses(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], COMPRESS)
    if line is None or line.unsure:
        return None
    if _prints(line) or not line.operands:
        return looks(argv)
    return writes(str(argv[0]), argv[1:], line.operands)


def _prints(line: Line) -> bool:
    return line.has("-c", "-l", "-t", "-V", "--stdout", "--to-stdout", "--list", "--test")


GRAMMARS: dict[str, Grammar] = {
    "tar": tar,
    "unzip": unzip,
    "zip": zips,
    **dict.fromkeys(
        names("gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd lzma unlzma lz4"), compresses
    ),
}
