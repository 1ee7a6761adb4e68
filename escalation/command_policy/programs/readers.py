"""Programs that read and print, without options that write or start something."""

from __future__ import annotations

from escalation.command_policy.programs.options import Grammar, looks, read, readers, writes
from escalation.command_policy.understanding import Understanding, Word

HARMLESS = """
    cat head tail wc cut tr nl tac rev paste join comm diff cmp md5sum sha1sum sha224sum
    sha256sum sha384sum sha512sum b2sum cksum sum stat du ls dir vdir basename dirname realpath
    readlink seq sleep fold fmt expand unexpand pr tsort factor numfmt base64 base32 basenc od
    hexdump hd strings column colrm cal ncal printenv nproc arch getconf locale zcat bzcat
    xzcat lzcat grep egrep fgrep zgrep expr which whereis look
    namei pathchk yes uuidgen jq gojq lsattr getfacl getfattr
    lscpu lsblk lsusb lspci lsmod lsmem lsns lslocks lslogins lsipc findmnt df free uptime
    uname id whoami who w last lastb groups users logname tty vmstat iostat mpstat
    modinfo numastat
"""
"""No option of theirs writes a file or starts a program."""

SORT = """
    -b -d -f -g -i -M -h -n -R -r -V -c -C -m -s -u -z -k= -S= -t= --ignore-leading-blanks
    --dictionary-order --ignore-case --general-numeric-sort --month-sort --human-numeric-sort
    --numeric-sort --random-sort --reverse --sort= --version-sort --check? --key= --merge --stable
    --buffer-size= --field-separator= --parallel= --unique --zero-terminated --files0-from= --debug
    -o= --output=
"""
UNIQ = """
    -c -d -D -i -u -z -f= -s= -w= --count --repeated --all-repeated? --group? --ignore-case
    --skip-fields= --skip-chars= --check-chars= --unique --zero-terminated
"""
DATE = """
    -d= --date= -f= --file= -I? --iso-8601? -R --rfc-email --rfc-3339= -r= --reference= -u --utc
    --universal --debug
"""
FILE = """
    -b -i -L -h -k -N -n -p -r -s -z -Z -0 -E -F= -e= -m= -P= --brief --mime --mime-type
    --mime-encoding --dereference --no-dereference --keep-going --raw --separator= --extension
"""
LESS = """
    -N -S -R -r -F -X -i -I -n -m -M -E -e -K -J -s -u -U -q --RAW-CONTROL-CHARS --chop-long-lines
    --LINE-NUMBERS --quit-if-one-screen --no-init
"""
MAN = "-k -f -a -w -W -K -s= -S= -L= -7 --whatis --apropos --where --path --all --section="
XXD = "-a -b -c= -C -d -e -E -g= -h -i -l= -n= -o= -p -ps -plain -r -s= -u -cols -len"
RG = """
    -i -v -n -N -l -L -c -o -w -x -F -P -U -S -s -H -I -a -0 -q -h -p -u -uu -uuu -e= -g= -t= -T=
    -A= -B= -C= -m= -M= -r= -d= -j= -E= --ignore-case --invert-match --line-number --no-line-number
    --files-with-matches --files-without-match --count --count-matches --only-matching --word-regexp
    --line-regexp --fixed-strings --pcre2 --multiline --smart-case --case-sensitive --with-filename
    --no-filename --text --null --quiet --pretty --hidden --no-ignore --no-ignore-vcs --files
    --regexp= --glob= --iglob= --type= --type-not= --type-list --after-context= --before-context=
    --context= --max-count= --max-columns= --replace= --max-depth= --threads= --encoding= --color=
    --colors= --heading --no-heading --sort= --sortr= --stats --json --vimgrep --trim --column
    --no-messages --follow --one-file-system --passthru --max-filesize= --no-config --version
"""
YQ = """
    -r -y -Y -c -n -e -P -C -M -j -N -o= -p= -i -I= --raw-output --compact-output --null-input
    --exit-status --arg= --prettyPrint --colors --no-colors --tojson --no-doc
    --output-format= --input-format= --inplace --indent= --unwrapScalar?
"""
TREE = """
    -a -d -f -i -l -x -L= -P= -I= -r -t -U -c -v -h -s -p -u -g -D -F -q -N -Q -J -X -C -n
    --noreport --dirsfirst --du --prune --filelimit= --charset= --gitignore -o=
"""
SAR = """
    -A -B -b -d -F -H -h -p -q -r -S -u -v -W -w -y -z -f= -s= -e= -i= -I= -m= -n= -P= -t --human
    --pretty --dec= -o=
"""
ICONV = "-f= -t= -c -l -s --from-code= --to-code= --list --silent -o= --output="
SHUF = """
    -e -i= -n= -r -z --echo --input-range= --head-count= --repeat --zero-terminated -o= --output=
"""


def prints_or_writes(options: str, *targets: str) -> Grammar:
    """Return a grammar for a program that writes only files named by `targets`."""

    def grammar(argv: tuple[Word, ...]) -> Understanding | None:
        line = read(argv[1:], options)
        if line is None or line.unsure:
            return None
        places = line.values(*targets)
        return writes(str(argv[0]), argv[1:], places) if places else looks(argv)

    return grammar


def second_is_written(options: str) -> Grammar:
    """Return a grammar for a program with an input file and an output file."""

    def grammar(argv: tuple[Word, ...]) -> Understanding | None:
        line = read(argv[1:], options)
        if line is None or line.unsure or len(line.operands) > 2:
            return None
        return writes(str(argv[0]), argv[1:], line.operands[1:])

    return grammar


def dates(argv: tuple[Word, ...]) -> Understanding | None:
    """Read date; an operand without a plus sets the clock."""
    line = read(argv[1:], DATE)
    if line is None or line.unsure:
        return None
    return looks(argv) if all((word or "").startswith("+") for word in line.operands) else None


def pages(options: str) -> Grammar:
    """Return a grammar for a pager; `+!command` would run a command."""

    def grammar(argv: tuple[Word, ...]) -> Understanding | None:
        line = read(argv[1:], options)
        if line is None or line.unsure:
            return None
        return None if any((word or "").startswith("+") for word in line.operands) else looks(argv)

    return grammar


def edits_yaml(argv: tuple[Word, ...]) -> Understanding | None:
    """Read both programs named yq; `load` and `env` only read."""
    line = read(argv[1:], YQ)
    if line is None or line.unsure:
        return None
    if line.has("-i", "--inplace"):
        return writes("yq", argv[1:], line.operands[1:])
    return looks(argv)


def python(argv: tuple[Word, ...]) -> Understanding | None:
    """Read python3 as a printer of JSON, and for its version."""
    match argv[1:]:
        case ("-m", "json.tool", *rest):
            line = read(
                tuple(rest),
                "--sort-keys --json-lines --indent= --tab --compact \
                --no-indent --no-ensure-ascii",
            )
            if line is None or line.unsure or len(line.operands) > 2:
                return None
            return writes("python3 -m json.tool", tuple(rest), line.operands[1:])
        case ("--version" | "-V",):
            return looks(argv)
    return None


def names_host(argv: tuple[Word, ...]) -> Understanding | None:
    """Read hostname; an operand would change the name in the sandbox only."""
    line = read(
        argv[1:],
        "-a -A -d -f -i -I -s -y --fqdn --long --short --domain --ip-address \
        --all-ip-addresses --all-fqdns --alias --yp --nis",
    )
    return looks(argv) if line and not line.operands else None


GRAMMARS: dict[str, Grammar] = {
    **readers(HARMLESS),
    "sort": prints_or_writes(SORT, "-o", "--output"),
    "iconv": prints_or_writes(ICONV, "-o", "--output"),
    "shuf": prints_or_writes(SHUF, "-o", "--output"),
    "uniq": second_is_written(UNIQ),
    "xxd": second_is_written(XXD),
    "date": dates,
    "file": prints_or_writes(FILE),
    "blkid": prints_or_writes("-o= -s= -p -i -k -L= -U= -t= -g -l --output= --match-tag= --label="),
    "tree": prints_or_writes(TREE, "-o"),
    "sensors": prints_or_writes("-u -j -A -f --no-adapter --fahrenheit"),
    "sar": prints_or_writes(SAR, "-o"),
    "pidstat": prints_or_writes("-d -r -u -h -H -l -s -t -v -w -R -I -U? -p= -C= -G= -T= --human"),
    "zstdcat": prints_or_writes("-q -v -f --force --quiet"),
    "rg": prints_or_writes(RG),
    "less": pages(LESS),
    "more": pages("-d -f -l -p -c -u -s -n="),
    "zless": pages(LESS),
    "man": pages(MAN),
    "apropos": pages(MAN),
    "whatis": pages(MAN),
    "yq": edits_yaml,
    "python3": python,
    "python": python,
    "hostname": names_host,
}
