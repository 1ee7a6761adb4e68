"""Commands and files whose output is a secret, whatever it looks like. Pure functions.

`kubectl get secret -o jsonpath=…`, `wg genkey` or `cat id_ed25519` print secrets without a name and
often without a known shape, so their output is redacted as a whole. Commands are read without
executing anything, as text: what a variable, a script or an alias hides is not recognized.
"""

from __future__ import annotations

import re

_PROGRAM = r"(?:^|[\s/])"
_WORDS = r"(?:[^\n]{0,500}\s)?"
READERS = re.compile(
    rf"""{_PROGRAM}(?:
      (?:kubectl|oc|k)\s(?:
          (?={_WORDS}get\s)(?={_WORDS}(?:[^\s,]+,)*secrets?(?:[\s,/.]|$))
          (?={_WORDS}(?:-o|--output|--template)[=\s]?(?!=?(?:name|wide)\b)\S)
        | {_WORDS}(?:create\s+token|view-secret)\b
        | {_WORDS}config\s+view\s{_WORDS}--raw\b
        )
    | wg\s+(?:genkey|genpsk|showconf|show\s{_WORDS}(?:private-key|preshared-keys|dump))\b
    | (?:vault|bao)\s+(?:-\S+\s+)*(?:kv\s+get|read|unwrap|print\s+token|token\s+create
        |operator\s+(?:init|rekey|generate-root))\b
    | (?:pass|gopass)\s+(?!(?:-h|--help|ls|list|find|search|grep|git|insert|add|init|edit|rm|remove
        |delete|mv|rename|cp|copy|help|version)\b)\S
    | gpg2?\s{_WORDS}(?:--export-secret-(?:sub)?keys|--decrypt|-d)(?:\s|$)
    | (?:docker|podman)\s+(?:config|secret)\s+inspect\b
    | age-keygen(?!{_WORDS}\s-y\b)
    | age\s{_WORDS}(?:-d|--decrypt)\b
    | sops\s{_WORDS}(?:-d|--decrypt|decrypt|exec-env)\b
    | ansible-vault\s+(?:view|decrypt)\b
    | openssl\s+(?:rand|genrsa|genpkey)\b
    | openssl\s+(?:rsa|pkey|ec|pkcs8|pkcs12)\s(?!{_WORDS}-(?:noout|pubout)\b)
    | (?:pwgen|apg)(?:\s|$)
    | aws\s{_WORDS}(?:secretsmanager\s+(?:batch-)?get-secret-value
        |ssm\s+get-parameters?(?:-by-path|-history)?\s{_WORDS}--with-decryption
        |ecr\s+get-(?:login-password|authorization-token)|sts\s+(?:assume-role|get-session-token)
        |iam\s+create-access-key)\b
    | gcloud\s{_WORDS}(?:secrets\s+versions\s+access|print-(?:access|identity)-token)\b
    | az\s{_WORDS}(?:keyvault\s+secret\s+show|account\s+get-access-token|keys\s+list
        |credential\s+show)\b
    | (?:gh|glab)\s+auth\s+token\b
    | (?:op\s+(?:read|item\s+get)|(?:bw|rbw)\s+get|lpass\s+show|keepassxc-cli\s+show
        |secret-tool\s+lookup|systemd-creds\s+(?:cat|decrypt)|virsh\s+secret-get-value)\b
    | (?:terraform|tofu)\s+output\s{_WORDS}-(?:json|raw)\b
    | nmcli\s{_WORDS}(?:-s|--show-secrets)\b
    )""",
    re.VERBOSE,
)
PRINTERS = re.compile(
    rf"{_PROGRAM}(?:cat|tac|nl|less|more|head|tail|bat|batcat|sed|awk|gawk|grep|egrep|zgrep|rg|cut|sort"
    r"|strings|base64|base32|xxd|od|hexdump|jq|yq|diff|fold|dd|tee)\s"
)
SECRET_DIRECTORY = re.compile(
    r"/ssl/private/.|/private-keys-v1\.d/.|/\.password-store/.|^/(?:var/)?run/secrets/."
)
KEY_FILE = re.compile(
    r"(?:^|/)id_[\w*?-]+$|/\.ssh/\*$|ssh_host_\w+_key$|\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)$"
    r"|(?:^|/)(?:\.vault-token|\.pgpass|\.netrc|\.git-credentials|g?shadow-?|(?:ch|p)ap-secrets"
    r"|ipsec\.secrets)$"
)
CERTIFICATE = re.compile(
    r"/certs?/[^/]*\.pem$|(?:^|[/_.-])(?:certs?|certificate|chain|fullchain|ca|bundle)\d*\.pem$"
)
PUBLIC_KEY = re.compile(r"(?:^|[/_.-])pub(?:lic)?(?:key)?\.\w+$")
SEPARATORS = re.compile(r"[;&|\n()`]|\$\(")
QUOTES = re.compile(r"\\\n|[\"'\\]")
OPTION_WITH_KEY = re.compile(r"\s(?:-i|--?key|--private-key|-inkey|--cert)[=\s]\s*\S+")
LONGEST_COMMAND = 20_000


def prints_secrets(command: str) -> bool:
    """Return True if a command reads secrets in order to print them."""
    plain = QUOTES.sub("", command[:LONGEST_COMMAND])
    parts = [part for part in SEPARATORS.split(plain) if part.strip()]
    return any(READERS.search(part) or _prints_key_file(part) for part in parts)


def is_key_file(path: str) -> bool:
    """Return True for the path of a private key or of a file that consists of secrets."""
    lowered = path.lower()
    if SECRET_DIRECTORY.search(lowered):
        return True
    is_public = CERTIFICATE.search(lowered) or PUBLIC_KEY.search(lowered)
    return KEY_FILE.search(lowered) is not None and not is_public


def _prints_key_file(part: str) -> bool:
    if not PRINTERS.search(part):
        return False
    words = OPTION_WITH_KEY.sub(" ", part).split()
    return any(is_key_file(word.removeprefix("if=").lstrip("<")) for word in words)
