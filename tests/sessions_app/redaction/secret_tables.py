"""Texts with a secret in them, and texts that only look as if: the tables of the redaction tests.

The keys are put together from pieces, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import hashlib
import json

LETTERS = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA1bC2dE3fG4hI5jK6lM7nO8pQ9rS0tU1v"
HEX = "0123456789abcdef0a1b2c3d4e5f60718293a4b5c6d7e8f90123456789abcdef"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".SflKxwRJSMeKKF2QT4fwpMeJf36P"
PEM = "PRIVATE KEY-----"
BODY = "MIIEowIBAAKCAQEA7bq3lTn0\nq1ZtYgXk9VhR2pS5mW8uB4cD"


def key(prefix: str, length: int = 40, of: str = LETTERS) -> tuple[str, str]:
    secret = prefix + of[:length]
    return f"it printed {secret} and ended", secret


ESC = "\x1b"


def noise(name: str, size: int) -> bytes:
    """Returns bytes that look random and are the same in every run."""
    return hashlib.shake_256(name.encode()).digest(size)


def b64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def b64url(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def word(name: str, length: int) -> str:
    """Returns letters and digits that look random."""
    return "".join(c for c in b64(noise(name, length * 2)) if c.isalnum())[:length]


def hexword(name: str, length: int) -> str:
    return noise(name, length).hex()[:length]


def base32(name: str, size: int) -> str:
    return base64.b32encode(noise(name, size)).decode().rstrip("=")


def wrapped(data: bytes, width: int = 64) -> list[str]:
    text = b64(data)
    return [text[at : at + width] for at in range(0, len(text), width)]


OPENSSH = wrapped(
    b"openssh-key-v1\0\0\0\0\x04none\0\0\0\x04none\0\0\0\0\0\0\0\x01\0\0\0\x33\0\0\0\x0bssh-ed25519\0\0\0\x20"
    + noise("openssh", 230),
    70,
)
RSA = wrapped(bytes.fromhex("308204a30201000282010100") + noise("rsa", 1180))
PKCS8 = wrapped(
    bytes.fromhex("308204be020100300d06092a864886f70d0101010500048204a8308204a40201000282010100")
    + noise("pkcs8", 1180)
)
EC = wrapped(bytes.fromhex("30770201010420") + noise("ec", 114))
ED25519 = b64(bytes.fromhex("302e020100300506032b657004220420") + noise("ed25519", 32))
ENCRYPTED = wrapped(
    bytes.fromhex(
        "308205 0e304006092a864886f70d01050d3033301b06092a864886f70d01050c300e0408".replace(" ", "")
    )
    + noise("encrypted", 1250)
)
PGP = wrapped(bytes.fromhex("9503980464") + noise("pgp", 900))
WG_KEY = b64(noise("wireguard", 32))
WG_PSK = b64(noise("preshared", 32))
ACCOUNT_JWT = ".".join(
    (
        b64url('{"alg":"RS256","kid":"' + word("kid", 20) + '"}'),
        b64url('{"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:shop:default"}'),
        b64url(noise("jwt", 256)),
    )
)
HA_TOKEN = ".".join(
    (
        b64url('{"alg":"HS256","typ":"JWT"}'),
        b64url('{"iss":"' + hexword("ha", 32) + '","iat":1700000000,"exp":2015360000}'),
        b64url(noise("ha", 32)),
    )
)
BEGIN, END = "-----BEGIN ", "-----END "
STRONG = "Vx7" + "!kPq2zR"
SHA512 = "$6$" + "rounds=5000$saltsalt$" + word("shadow", 86)
BCRYPT = "$2y$" + "10$" + word("bcrypt", 53)
APR1 = "$apr1$" + "r31abcde$" + word("apr1", 22)
YESCRYPT = "$y$" + "j9T$" + word("ysalt", 22) + "$" + word("yescrypt", 43)

K8S_YAML = f"""apiVersion: v1
data:
  password: {b64("hunter2")}
  username: {b64("shop")}
kind: Secret
metadata:
  name: shop-db
  namespace: shop
type: Opaque"""
K8S_YAML_AFTER_KIND = f"""apiVersion: v1
kind: Secret
metadata:
  name: shop-db
type: Opaque
data:
  settings.ini: {b64("host = db1")}
  blob: {b64(noise("k8s", 24))}"""
K8S_STRING_DATA = """apiVersion: v1
kind: Secret
metadata:
  name: grafana-admin
stringData:
  admin-user: admin
  admin-login: Blumentopf77"""
K8S_JSON = json.dumps(
    {
        "apiVersion": "v1",
        "data": {"tls.key": b64(f"{BEGIN}PRIVATE KEY-----\n" + "\n".join(PKCS8[:3]) + "\n")},
        "kind": "Secret",
        "metadata": {"name": "shop-tls"},
    },
    indent=4,
)
K8S_JSON_PLAIN_NAME = json.dumps(
    {
        "kind": "Secret",
        "data": {"config": b64("Blumentopf77"), "mode": b64("prod")},
        "metadata": {"name": "shop"},
    }
)
K8S_LIST = f"""apiVersion: v1
items:
- apiVersion: v1
  data:
    pin: {b64("481516-2342")}
  kind: Secret
  metadata:
    name: door
kind: List"""
DOCKER_CONFIG = json.dumps(
    {"auths": {"registry.example.com": {"auth": b64("deploy:Blumentopf77")}}}, indent=8
)
DOCKER_CONFIG_JSON = b64(DOCKER_CONFIG)

IN_BASE64 = {
    "assignment": b64("DB_PASSWORD=hunter2 DB_USER=shop"),
    "json": b64('{"user": "shop", "password": "hunter2"}'),
    "json in base64url": b64url('{"client_secret": "Blumentopf77~~~???"}'),
    "url": b64("postgres://shop:hunter2@db1/shop"),
    "github": b64("ghp" + "_" + word("gh", 36)),
    "openssh": b64("\n".join([f"{BEGIN}OPENSSH PRIVATE KEY-----", *OPENSSH[:3]])),
    "kubeconfig": b64("users:\n- user:\n    token: " + word("kc", 30)),
    "yaml": b64("root_password: Blumentopf77"),
    "client key": b64(f"{BEGIN}EC PRIVATE KEY-----\n{EC[0]}"),
    "tunnel": b64('{"a":"' + hexword("a", 32) + '","t":"x","s":"' + word("s", 40) + '"}'),
    "grafana cloud": b64('{"o":"1","n":"x","k":"' + word("glc", 24) + '"}'),
    "grafana key": b64('{"k":"' + word("gk", 32) + '","n":"ci","id":1}'),
    "1password": b64url('{"signInAddress":"x","secretKey":"' + word("op", 60) + '"}'),
}
SAS = b64(noise("sas", 32)).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")

SECRETS: dict[str, tuple[str, str]] = {
    # keys of providers
    "anthropic": key("sk-" + "ant-api03-"),
    "anthropic oauth": key("sk-" + "ant-oat01-"),
    "openai project": key("sk-" + "proj-"),
    "openai old": key("sk-", 48),
    "openrouter": key("sk-" + "or-v1-", 64, HEX),
    "aws key id": ("id AKIA" + "IOSFODNN7EXAMPLE.", "AKIA" + "IOSFODNN7EXAMPLE"),
    "aws temporary id": ("ASIA" + "IOSFODNN7EXAMPLE", "ASIA" + "IOSFODNN7EXAMPLE"),
    "github classic": key("ghp" + "_", 36),
    "github app": key("ghs" + "_", 36),
    "github fine-grained": key("github" + "_pat_", 60),
    "gitlab": key("glpat" + "-", 20),
    "gitlab runner": key("glrt" + "-", 20),
    "slack bot": ("xoxb" + "-123456789012-abcdefGHIJ", "123456789012-abcdefGHIJ"),
    "slack app": ("xapp" + "-1-A0123-456-abcdef0123", "A0123-456-abcdef0123"),
    "slack webhook": (
        "https://hooks.slack.com/services/" + "T000/B000/" + LETTERS[:24],
        LETTERS[:24],
    ),
    "discord webhook": (
        "https://discord.com/api/webhooks/" + "123456789/" + LETTERS[:60],
        LETTERS[:60],
    ),
    "stripe live": key("sk" + "_live_", 24),
    "stripe restricted": key("rk" + "_live_", 24),
    "stripe webhook": key("whsec" + "_", 32),
    "google api": key("AIza", 35),
    "google oauth": key("ya29" + ".", 40),
    "google client": key("GOCSPX" + "-", 28),
    "npm": key("npm" + "_", 36),
    "pypi": key("pypi-" + "AgEIcHlwaS5vcmc", 50),
    "rubygems": key("rubygems" + "_", 48, HEX),
    "docker hub": key("dckr" + "_pat_", 27),
    "digitalocean": key("dop" + "_v1_", 64, HEX),
    "telegram": ("bot 123456789" + ":AA" + LETTERS[:33], LETTERS[:33]),
    "sendgrid": ("SG" + "." + LETTERS[:22] + "." + LETTERS[:43], LETTERS[:22]),
    "twilio": key("SK", 32, HEX),
    "mailgun": key("key" + "-", 32, HEX),
    "mailchimp": (f"{HEX[:32]}" + "-us12", HEX[:32]),
    "hugging face": key("hf" + "_", 34),
    "groq": key("gsk" + "_", 52),
    "vault": key("hvs" + ".", 40),
    "terraform": (LETTERS[:14] + ".atlasv1." + LETTERS, LETTERS),
    "databricks": key("dapi", 32, HEX),
    "shopify": key("shpat" + "_", 32, HEX),
    "grafana": ("glsa" + "_" + LETTERS[:32] + "_0a1b2c3d", LETTERS[:32]),
    "sentry": key("sntrys" + "_", 50),
    "new relic": key("NRAK" + "-", 27),
    "tailscale": key("tskey" + "-auth-", 30),
    "linear": key("lin" + "_api_", 40),
    "atlassian": key("ATATT3", 60),
    "age": ("AGE-SECRET-" + "KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2, "QPZRY9X8"),
    "jwt": (f"the token is {JWT}", JWT.split(".")[2]),
    "jwt after an escaped line end": (f"line\\n{JWT}\\nline", JWT.split(".")[1]),
    # blocks
    "private key": (f"a\n-----BEGIN RSA {PEM}\n{BODY}\n-----END RSA {PEM}\nb", "q1ZtYgXk9V"),
    "private key cut off": (f"-----BEGIN {PEM}\n{BODY}", "q1ZtYgXk9V"),
    "private key without its head": (f"{BODY}\n-----END {PEM}", "MIIEowIBAAKC"),
    "private key in json": (
        f'{{"private_key": "-----BEGIN {PEM}\\nMIIEow\\nIBAAK\\n-----END {PEM}\\n"}}',
        "MIIEow",
    ),
    "openssh key": (
        f"-----BEGIN OPENSSH {PEM}\nb3BlbnNz\n-----END OPENSSH {PEM}",
        "b3BlbnNz",
    ),
    "encrypted key": (
        f"-----BEGIN ENCRYPTED {PEM}\nMIIFow\n-----END ENCRYPTED {PEM}",
        "MIIFow",
    ),
    # addresses
    "postgres address": ("postgres://app:hunter22@db.internal/shop", "hunter22"),
    "redis address without user": ("redis://:hunter22@cache:6379/0", "hunter22"),
    "mongodb address": ("mongodb+srv://app:hun%40ter22@c0.example.net/x", "hun%40ter22"),
    "git address": ("https://robot:hunter22@git.example.org/x.git", "hunter22"),
    "git address with a token alone": (f"https://{LETTERS[:30]}@git.example.org", LETTERS[:30]),
    "address with an @ in the password": ("amqp://app:hun@ter22@mq/", "ter22"),
    "signed address": (f"https://x.blob.example.net/a?sv=1&sig={LETTERS[:30]}", LETTERS[:30]),
    # headers
    "bearer": ("Authorization: Bearer abcdef123456", "abcdef123456"),
    "basic": ("authorization: Basic YXBwOnNlY3JldA==", "YXBwOnNl"),
    "header in json": ('{"Authorization": "Bearer abcdef123456"}', "abcdef123456"),
    "bearer alone": ("with bearer abcdef1234567890", "abcdef1234567890"),
    "api key header": ("X-Api-Key: 0123456789abcdef", "0123456789abcdef"),
    "cookie": ("Cookie: sessionid=q8w7e6r5; theme=dark", "q8w7e6r5"),
    "set-cookie": ("< Set-Cookie: sid=q8w7e6r5; Path=/; HttpOnly", "q8w7e6r5"),
    "private token header": ("curl -H 'PRIVATE-TOKEN: abc123def456' x", "abc123def456"),
    # options of programs
    "curl -u": ("curl -s -u app:hunter22 https://x", "hunter22"),
    "curl --user": ('curl --user "app:hunter22" https://x', "hunter22"),
    "option with a space": ("backup --password hunter22 --all", "hunter22"),
    "option with =": ("backup --db-password=hunter22", "hunter22"),
    "option token": ("gh auth --token hunter22", "hunter22"),
    "docker login": ("docker login -u app -p hunter22 registry", "hunter22"),
    "mysql": ("mysql -u root -phunter22 shop", "hunter22"),
    "sshpass": ("sshpass -p 'hunter22' ssh web", "hunter22"),
    "redis-cli": ("redis-cli -h cache -a hunter22 ping", "hunter22"),
    "ldapsearch": ("ldapsearch -D cn=x -w hunter22 -b dc=x", "hunter22"),
    "htpasswd": ("htpasswd -bB users app hunter22", "hunter22"),
    "openssl": ("openssl rsa -passin pass:hunter22 -in k", "hunter22"),
    "smbclient": ("smbclient //nas/x -U app%hunter22", "hunter22"),
    # files and languages
    "environment": ("DB_PASSWORD=hunter22 PATH=/bin", "hunter22"),
    "export": ("export GITHUB_TOKEN='hunter22 x'", "hunter22 x"),
    "pgpassword": ("PGPASSWORD=hunter22 psql", "hunter22"),
    "yaml": ("db:\n  password: hunter22", "hunter22"),
    "yaml of letters": ("  password: hunter", "hunter"),
    "yaml block": ("password: |\n    hunter22 x", "hunter22"),
    "json": ('{"password": "hunter22", "user": "app"}', "hunter22"),
    "json number": ('{"password": 12345678}', "12345678"),
    "json in json": ('{"text": "{\\"api_key\\": \\"hunter22\\"}"}', "hunter22"),
    "json with an escaped quote": ('{"password": "hun\\"ter22"}', "ter22"),
    "toml": ('client_secret = "hunter22"', "hunter22"),
    "ruby hash": (":password => 'hunter22'", "hunter22"),
    "go": ('dbPassword := "hunter22"', "hunter22"),
    "query": ("GET /hook?access_token=abcdef123456&a=1", "abcdef123456"),
    "aws secret": ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalr"),
    "ado connection string": ("Server=db;User Id=app;Password=hunter22;", "hunter22"),
    "azure storage": ("AccountName=a;AccountKey=aB3dE5gH7j==;x", "aB3dE5gH7j"),
    "xml": ("<password>hunter22</password>", "hunter22"),
    "xml attribute": ('<add key="DbPassword" value="hunter22"/>', "hunter22"),
    "sql": ("CREATE USER a IDENTIFIED BY 'hunter22'", "hunter22"),
    "sql of postgres": ("ALTER ROLE a WITH PASSWORD 'hunter22'", "hunter22"),
    "netrc": ("machine x login app password hunter22", "hunter22"),
    "pgpass": ("db.internal:5432:shop:app:hunter22", "hunter22"),
    "npmrc": ("//registry.example.org/:_authToken=hunter22", "hunter22"),
    "npmrc auth": ("_auth=YXBwOnNlY3JldA==", "YXBwOnNl"),
    "docker config": ('{"auths": {"r": {"auth": "YXBwOnNlY3JldA=="}}}', "YXBwOnNl"),
    "kubeconfig": ("client-key-data: LS0tLS1CRUdJTiBSU0EK", "LS0tLS1C"),
    "wireguard": ("PrivateKey = aB3dE5gH7jK9mN1pQ2rS4tU6=", "aB3dE5gH7j"),
    "redis configuration": ("requirepass hunter22", "hunter22"),
    "shadow": ("root:$6$" + "rounds$q1ZtYgXk9VhR2pS5mW8uB4cD:19000::", "q1ZtYgXk9V"),
    "htpasswd file": ("app:$apr1$" + "abcdefgh$ijklmnopqrstuvwxyz01", "ijklmnop"),
    "django hash": ("pbkdf2_sha256$" + "600000$saltsalt$aB3dE5gH7jK9mN1p", "aB3dE5gH7j"),
    "passphrase": ("passphrase = 'correct horse'", "correct horse"),
    "capitals": ("PASSWORD: HUNTER22", "HUNTER22"),
    "unzip with a password": (
        "unzip -P Xk9pQ2mT7vLs4WzR a.zip",
        "Xk9pQ2mT7vLs4WzR",
    ),
    "zip with a password": (
        "zip -P Xk9pQ2mT7vLs4WzR a.zip f",
        "Xk9pQ2mT7vLs4WzR",
    ),
    "mosquitto": (
        "mosquitto_pub -h hub -u u -P Xk9pQ2mT7vLs4WzR -t x",
        "Xk9pQ2mT7vLs4WzR",
    ),
    "openssl enc": (
        "openssl enc -d -aes256 -k Xk9pQ2mT7vLs4WzR -in f",
        "Xk9pQ2mT7vLs4WzR",
    ),
    "sudo by a pipe": (
        "echo Xk9pQ2mT7vLs4WzR | sudo -S systemctl restart web",
        "Xk9pQ2mT7vLs4WzR",
    ),
    "csh": (
        "setenv DB_PASSWORD Xk9pQ2mT7vLs4WzR",
        "Xk9pQ2mT7vLs4WzR",
    ),
    "rclone obscure": (
        "rclone obscure Xk9pQ2mT7vLs4WzR",
        "Xk9pQ2mT7vLs4WzR",
    ),
    "wifi": (
        'psk="Xk9pQ2mT7vLs4WzR"',
        "Xk9pQ2mT7vLs4WzR",
    ),
    "rclone configuration": (
        "pass = Xk9pQ2mT7vLs4WzR",
        "Xk9pQ2mT7vLs4WzR",
    ),
    "german": (
        "Passwort: Xk9pQ2mT7vLs4WzR",
        "Xk9pQ2mT7vLs4WzR",
    ),
    "german, otherwise": (
        "kennwort=Xk9pQ2mT7vLs4WzR",
        "Xk9pQ2mT7vLs4WzR",
    ),
    "french": (
        "mot_de_passe=Xk9pQ2mT7vLs4WzR",
        "Xk9pQ2mT7vLs4WzR",
    ),
    "spanish": (
        "contraseña: Xk9pQ2mT7vLs4WzR",
        "Xk9pQ2mT7vLs4WzR",
    ),
    "k3s token": (
        "K10" + "ab12" * 16 + "::server:Xk9pQ2mT7vLs4WzR",
        "Xk9pQ2mT7vLs4WzR",
    ),
    # --- as the programs of operations print, store and take secrets
    # terminal control sequences
    "bold value": (f"password: {ESC}[1mhunter2{ESC}[0m", "hunter2"),
    "coloured name": (f"{ESC}[32mpassword{ESC}[0m: hunter2", "hunter2"),
    "colour inside the value": (f"password: hun{ESC}[31mter2{ESC}[0m", "ter2"),
    "coloured JSON of jq": (
        f'{ESC}[34;1m"password"{ESC}[0m{ESC}[1;39m: {ESC}[0;32m"hunter2"{ESC}[0m',
        "hunter2",
    ),
    "256 colours": (
        f"{ESC}[38;5;208mAPI_KEY{ESC}[0m={ESC}[38;5;45m{word('c', 24)}{ESC}[0m",
        word("c", 24),
    ),
    "title before the line": (f"{ESC}]0;root@db1: ~\x07password: hunter2", "hunter2"),
    "hyperlink": (
        f"{ESC}]8;;https://vault.example.com{ESC}\\token{ESC}]8;;{ESC}\\: {word('osc', 20)}",
        word("osc", 20),
    ),
    "key in colour": (
        f"key {ESC}[1mAKIA{ESC}[22m{ESC}[33mQ7ZT2MWV5XLKJH3N{ESC}[0m",
        "Q7ZT2MWV5XLKJH3N",
    ),
    "grep's highlighting": (
        f"{ESC}[35m.env{ESC}[m{ESC}[36m:{ESC}[mDB_{ESC}[01;31m{ESC}[KPASSWORD{ESC}[m{ESC}[K=hunter2",
        "hunter2",
    ),
    "erase and return": (f"Connecting{ESC}[2K\rpassphrase: {ESC}[?25hhunter2", "hunter2"),
    "8-bit control sequence": ("password: \x9b1mhunter2\x9b0m", "hunter2"),
    "charset selection": (f"password: {ESC}(Bhunter2{ESC}(B", "hunter2"),
    # base64
    "base64 of an assignment": ("payload " + IN_BASE64["assignment"], IN_BASE64["assignment"]),
    "base64 of JSON": ("config=" + IN_BASE64["json"], IN_BASE64["json"]),
    "base64url of JSON": (
        "state=" + IN_BASE64["json in base64url"] + "&x=1",
        IN_BASE64["json in base64url"],
    ),
    "base64 of a URL with password": ("dsn: " + IN_BASE64["url"], IN_BASE64["url"]),
    "base64 of a provider key": ("x: " + IN_BASE64["github"], IN_BASE64["github"]),
    "base64 of a private key": ("out: " + IN_BASE64["openssh"], IN_BASE64["openssh"]),
    "base64 of a kubeconfig token": (IN_BASE64["kubeconfig"], IN_BASE64["kubeconfig"]),
    "base64 piped to decode": ("echo " + IN_BASE64["yaml"] + " | base64 -d", IN_BASE64["yaml"]),
    "client key in a kubeconfig": (
        "    client-key-data: " + IN_BASE64["client key"],
        IN_BASE64["client key"][30:],
    ),
    "Kubernetes Secret, data before kind": (K8S_YAML, b64("hunter2")),
    "Kubernetes Secret, user name too": (K8S_YAML, b64("shop")),
    "Kubernetes Secret, data after kind": (K8S_YAML_AFTER_KIND, b64("host = db1")),
    "Kubernetes Secret, binary data": (K8S_YAML_AFTER_KIND, b64(noise("k8s", 24))),
    "Kubernetes Secret, stringData": (K8S_STRING_DATA, "Blumentopf77"),
    "Kubernetes Secret in JSON": (
        K8S_JSON,
        b64(f"{BEGIN}PRIVATE KEY-----\n" + "\n".join(PKCS8[:3]) + "\n"),
    ),
    "Kubernetes Secret in one line of JSON": (K8S_JSON_PLAIN_NAME, b64("Blumentopf77")),
    "Kubernetes list of Secrets": (K8S_LIST, b64("481516-2342")),
    "dockerconfigjson": (f"  .dockerconfigjson: {DOCKER_CONFIG_JSON}", DOCKER_CONFIG_JSON[20:]),
    "dockerconfigjson in JSON": (
        f'{{".dockerconfigjson": "{DOCKER_CONFIG_JSON}"}}',
        DOCKER_CONFIG_JSON[20:],
    ),
    "docker config, again": (DOCKER_CONFIG, b64("deploy:Blumentopf77")),
    "docker auth in YAML": (f"    auth: {b64('user:pass')}", b64("user:pass")),
    "docker identity token": (f'"identitytoken": "{word("idt", 40)}"', word("idt", 40)),
    "npmrc _auth": (f"_auth={b64('deploy:Blumentopf77')}", b64("deploy:Blumentopf77")),
    # private keys, with and without head and tail
    "OpenSSH body without head": ("\n".join(OPENSSH), OPENSSH[1]),
    "OpenSSH first line alone": (OPENSSH[0], OPENSSH[0][30:]),
    "OpenSSH body, last line": ("\n".join(OPENSSH), OPENSSH[-1]),
    "OpenSSH body, tail without head": (
        "\n".join([*OPENSSH[1:], f"{END}OPENSSH PRIVATE KEY-----"]),
        OPENSSH[1],
    ),
    "OpenSSH body in one line": ("".join(OPENSSH), "".join(OPENSSH)[100:140]),
    "OpenSSH head without tail": (
        "\n".join([f"{BEGIN}OPENSSH PRIVATE KEY-----", *OPENSSH]),
        OPENSSH[-2],
    ),
    "RSA body without head": ("\n".join(RSA), RSA[5]),
    "RSA body, last line": ("\n".join(RSA), RSA[-1]),
    "RSA body with line numbers": (
        "\n".join(f"{n:6}\t{line}" for n, line in enumerate(RSA, 1)),
        RSA[3],
    ),
    "RSA body indented": ("key: |\n" + "\n".join(f"    {line}" for line in RSA), RSA[3]),
    "PKCS8 body without head": ("\n".join(PKCS8), PKCS8[2]),
    "PKCS8 block": (
        "\n".join([f"{BEGIN}PRIVATE KEY-----", *PKCS8, f"{END}PRIVATE KEY-----"]),
        PKCS8[2],
    ),
    "PKCS8 encrypted block": (
        "\n".join(
            [f"{BEGIN}ENCRYPTED PRIVATE KEY-----", *ENCRYPTED, f"{END}ENCRYPTED PRIVATE KEY-----"]
        ),
        ENCRYPTED[4],
    ),
    "EC block": (
        "\n".join([f"{BEGIN}EC PRIVATE KEY-----", *EC, f"{END}EC PRIVATE KEY-----"]),
        EC[1],
    ),
    "EC body without head": ("\n".join(EC), EC[1]),
    "Ed25519 body without head": (ED25519, ED25519[24:]),
    "PGP block": (
        "\n".join(
            [
                f"{BEGIN}PGP PRIVATE KEY BLOCK-----",
                "Comment: backup",
                "",
                *PGP,
                "=aB3d",
                f"{END}PGP PRIVATE KEY BLOCK-----",
            ]
        ),
        PGP[3],
    ),
    "PGP block cut off": ("\n".join([f"{BEGIN}PGP PRIVATE KEY BLOCK-----", "", *PGP]), PGP[-1]),
    "key escaped in JSON": (
        json.dumps(
            {
                "private_key": "\n".join(
                    [f"{BEGIN}PRIVATE KEY-----", *PKCS8, f"{END}PRIVATE KEY-----"]
                )
            }
        ),
        PKCS8[4],
    ),
    "key body with a diff's plus": ("\n".join(f"+{line}" for line in RSA), RSA[3]),
    "PuTTY key": (
        "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPrivate-Lines: 1\n"
        + b64(noise("putty", 36)),
        b64(noise("putty", 36)),
    ),
    "JWK": (
        f'{{"kty":"EC","crv":"P-256","d":"{b64url(noise("jwk", 32))}"}}',
        b64url(noise("jwk", 32)),
    ),
    "WireGuard configuration": (
        f"[Interface]\nPrivateKey = {WG_KEY}\nAddress = 10.0.0.1/24",
        WG_KEY,
    ),
    "WireGuard preshared key": (f"PresharedKey = {WG_PSK}", WG_PSK),
    "WireGuard without spaces": (f"PrivateKey={WG_KEY}", WG_KEY),
    "WireGuard in wg show dump": (f"wg0\t{WG_KEY}\t{b64(noise('public', 32))}\t51820\toff", WG_KEY),
    "WireGuard in Ansible": (f"wireguard_private_key: '{WG_KEY}'", WG_KEY),
    "age key": ("AGE-SECRET-KEY-1" + word("age", 58).upper(), word("age", 58).upper()),
    "age key file": (
        "# created: 2025-01-01T00:00:00Z\n# public key: age1"
        + word("agep", 58).lower()
        + "\nAGE-SECRET-KEY-1"
        + word("age2", 58).upper(),
        word("age2", 58).upper(),
    ),
    "dnssec key file": (
        f"Private-key-format: v1.3\nAlgorithm: 13 (ECDSAP256SHA256)\nPrivateKey: {WG_KEY}",
        WG_KEY,
    ),
    "TSIG key": (f'key "ddns" {{ algorithm hmac-sha256; secret "{WG_KEY}"; }};', WG_KEY),
    # TOTP and recovery codes
    "otpauth address": (
        f"otpauth://totp/Shop:root?secret={base32('otp', 20)}&issuer=Shop",
        base32("otp", 20),
    ),
    "otpauth address, secret last": (
        f"otpauth://totp/x?issuer=Shop&secret={base32('otp2', 20)}",
        base32("otp2", 20),
    ),
    "TOTP seed in YAML": (f"totp_secret: {base32('totp', 10)}", base32("totp", 10)),
    "TOTP seed in env": (f"TOTP_SEED={base32('totp2', 20)}", base32("totp2", 20)),
    "TOTP seed in prose": (f"Your TOTP secret is {base32('totp3', 20)}", base32("totp3", 20)),
    "google-authenticator": (f"Your new secret key is: {base32('ga', 16)}", base32("ga", 16)),
    "google-authenticator scratch codes": (
        "Your emergency scratch codes are:\n  48151623\n  42108815\n  90125551",
        "90125551",
    ),
    "mfa seed in JSON": (f'{{"mfa_secret": "{base32("mfa", 20)}"}}', base32("mfa", 20)),
    "recovery codes, one a line": (
        "Recovery codes:\n  a1b2c-d3e4f\n  k9l8m-n7o6p\n  q5r4s-t3u2v\n",
        "k9l8m-n7o6p",
    ),
    "recovery codes, last": (
        "Recovery codes:\n  a1b2c-d3e4f\n  k9l8m-n7o6p\n  q5r4s-t3u2v\n",
        "q5r4s-t3u2v",
    ),
    "backup codes, numbered": (
        "Backup codes\n1. 4815-1623\n2. 4210-8815\n3. 9012-5551",
        "9012-5551",
    ),
    "backup codes in YAML": ("backup_codes:\n  - 48151623\n  - 42108815\n", "42108815"),
    "recovery codes in JSON": ('{"recovery_codes": ["a1b2c-d3e4f", "k9l8m-n7o6p"]}', "k9l8m-n7o6p"),
    "backup codes in one line": ("backup codes: 48151623 42108815 90125551", "42108815"),
    "Vault unseal keys": (f"Unseal Key 1: {WG_KEY}\nUnseal Key 2: {WG_PSK}", WG_PSK),
    "LUKS recovery key": (
        "Recovery key: 123456-234567-345678-456789-567890-678901-789012-890123",
        "345678-456789",
    ),
    # payment cards
    "card without separators": ("card 4111111111111111 declined", "4111111111111111"),
    "card with spaces": ("card number 5500 0055 5555 5559 exp 12/27", "5500 0055 5555 5559"),
    "card with dashes": ("pan=4012-8888-8888-1881", "4012-8888-8888-1881"),
    "American Express": ("amex 3782 822463 10005", "3782 822463 10005"),
    "card in JSON": ('{"pan": "6011111111111117"}', "6011111111111117"),
    "card in a log line": (
        "2025-01-02T03:04:05Z WARN charge failed for 5105105105105100: timeout",
        "5105105105105100",
    ),
    # prose
    "the password is": ("the password is hunter2", "hunter2"),
    "the password is, quoted": (
        'The password is "correct horse battery".',
        "correct horse battery",
    ),
    "the root password was changed to": (
        "the root password was changed to Blumentopf77",
        "Blumentopf77",
    ),
    "password has been set to": (
        "The password for admin has been set to Blumentopf77.",
        "Blumentopf77",
    ),
    "I set the password to": (
        "I set the password to Blumentopf77 and restarted it",
        "Blumentopf77",
    ),
    "use the password": ("Log in as root with password Blumentopf77 please", "Blumentopf77"),
    "new password for user": ("New password for user shop: Blumentopf77", "Blumentopf77"),
    "Passwort lautet": ("Das Passwort lautet Blumentopf77", "Blumentopf77"),
    "Passwort ist": ("Das Passwort ist: hunter2", "hunter2"),
    "Kennwort wurde geändert": ("Das Kennwort wurde auf Blumentopf77 geändert", "Blumentopf77"),
    "mot de passe": ("Le mot de passe est Blumentopf77", "Blumentopf77"),
    "contraseña": ("La contraseña es Blumentopf77", "Blumentopf77"),
    "in Markdown": ("The **password** is `hunter2`", "hunter2"),
    "in a Markdown table": (
        "| user | password |\n| --- | --- |\n| shop | Blumentopf77 |",
        "Blumentopf77",
    ),
    "passphrase in prose": ("the passphrase is Blumentopf77-Regen", "Blumentopf77-Regen"),
    "token in prose": (f"the API token is {word('prose', 32)}", word("prose", 32)),
    "api key in prose": (f"Your API key: {word('prose2', 32)}", word("prose2", 32)),
    "PIN in prose": ("The PIN is 481516", "481516"),
    "initial password": ("Initial admin password: Blumentopf77", "Blumentopf77"),
    "generated password": ("generated a temporary password: kPq2zRVx7", "kPq2zRVx7"),
    "user and password in brackets": (
        "credentials (user: shop, password: Blumentopf77)",
        "Blumentopf77",
    ),
    "login slash": ("credentials: shop / Blumentopf77", "Blumentopf77"),
    # headers
    "Basic header": (f"Authorization: Basic {b64('shop:hunter2')}", b64("shop:hunter2")),
    "Basic header in curl": (
        f"curl -H 'Authorization: Basic {b64('a:b1')}' https://x",
        b64("a:b1"),
    ),
    "Basic header in JSON": (
        f'{{"Authorization": "Basic {b64("shop:hunter2")}"}}',
        b64("shop:hunter2"),
    ),
    "lower case header": (f"> authorization: basic {b64('shop:hunter2')}", b64("shop:hunter2")),
    "proxy header": (f"Proxy-Authorization: Basic {b64('proxy:hunter2')}", b64("proxy:hunter2")),
    "Bearer header": (f"Authorization: Bearer {word('bearer', 30)}", word("bearer", 30)),
    "Token header": (f"Authorization: Token {hexword('tok', 40)}", hexword("tok", 40)),
    "X-Api-Key": (f"X-Api-Key: {word('xapi', 24)}", word("xapi", 24)),
    "X-Auth-Token": (f"X-Auth-Token: {hexword('xauth', 32)}", hexword("xauth", 32)),
    "X-Vault-Token": (f"X-Vault-Token: {word('xvault', 24)}", word("xvault", 24)),
    "PRIVATE-TOKEN": (f"PRIVATE-TOKEN: {word('xgl', 20)}", word("xgl", 20)),
    "session cookie": (f"Cookie: sessionid={word('cookie', 32)}; theme=dark", word("cookie", 32)),
    "Set-Cookie": (f"Set-Cookie: PHPSESSID={word('php', 26)}; path=/", word("php", 26)),
    # addresses
    "https with password": ("git clone https://deploy:hunter2@git.example.com/shop.git", "hunter2"),
    "address with token as user": (
        f"https://{word('asuser', 40)}@git.example.com/shop.git",
        word("asuser", 40),
    ),
    "postgres": ("postgresql://shop:Blumentopf77@db1:5432/shop?sslmode=require", "Blumentopf77"),
    "mysql, again": ("mysql+pymysql://root:Blumentopf77@127.0.0.1/shop", "Blumentopf77"),
    "mongodb": (
        "mongodb+srv://shop:Blumentopf77@cluster0.abcde.mongodb.net/?retryWrites=true",
        "Blumentopf77",
    ),
    "amqp": ("amqps://shop:Blumentopf77@mq1:5671/%2Fshop", "Blumentopf77"),
    "redis without user": ("redis://:Blumentopf77@cache1:6379/0", "Blumentopf77"),
    "ftp": ("ftp://backup:Blumentopf77@nas1/daily", "Blumentopf77"),
    "smtp": ("EMAIL_URL=smtp+tls://mailer:Blumentopf77@mail:587", "Blumentopf77"),
    "ldap": ("ldaps://cn=admin:Blumentopf77@ldap1", "Blumentopf77"),
    "mqtt": ("mqtt://sensor:Blumentopf77@broker:1883", "Blumentopf77"),
    "rtsp": ("rtsp://admin:Blumentopf77@192.0.2.7:554/stream1", "Blumentopf77"),
    "password with an at sign": ("postgres://shop:Blumen@topf77@db1/shop", "topf77"),
    "percent encoding": ("https://shop:Blumen%40topf77@example.com/", "Blumen%40topf77"),
    "JDBC parameters": (
        "jdbc:postgresql://db1/shop?user=shop&password=Blumentopf77",
        "Blumentopf77",
    ),
    "JDBC SQL Server": (
        "jdbc:sqlserver://db1:1433;databaseName=shop;user=sa;password=Blumentopf77;",
        "Blumentopf77",
    ),
    "JDBC Oracle": ("jdbc:oracle:thin:shop/Blumentopf77@//db1:1521/SHOP", "Blumentopf77"),
    "ADO connection string": (
        "Server=db1;Database=shop;User Id=sa;Pwd=Blumentopf77;",
        "Blumentopf77",
    ),
    "libpq connection string": (
        "host=db1 user=shop password=Blumentopf77 dbname=shop",
        "Blumentopf77",
    ),
    "token in a query": (
        f"GET /api/v1?access_token={word('query', 32)} HTTP/1.1",
        word("query", 32),
    ),
    "signed S3 address": (
        f"https://b.s3.amazonaws.com/k?X-Amz-Signature={hexword('amz', 64)}&x=1",
        hexword("amz", 64),
    ),
    "Azure SAS": ("https://a.blob.core.windows.net/c?sv=2022-11-02&sig=" + SAS, SAS),
    # command lines
    "PGPASSWORD": ("PGPASSWORD=hunter2 psql -h db1 -U shop", "hunter2"),
    "PGPASSWORD, exported and quoted": ("export PGPASSWORD='Blumen topf 77'", "Blumen topf 77"),
    "MYSQL_PWD": ("MYSQL_PWD=hunter2 mysqldump shop", "hunter2"),
    "mysql -p": ("mysql -u root -phunter2 -e 'show databases'", "hunter2"),
    "mysql -p quoted": ("mysqldump -uroot -p'Blumen topf77' shop", "Blumen topf77"),
    "mysqladmin": ("mysqladmin -u root -pBlumentopf77 status", "Blumentopf77"),
    "mysql in docker exec": ("docker exec db mysql -uroot -pBlumentopf77", "Blumentopf77"),
    "mariadb": ("mariadb --user=root --password=Blumentopf77 shop", "Blumentopf77"),
    "redis-cli -a": ("redis-cli -h cache1 -a Blumentopf77 ping", "Blumentopf77"),
    "redis-cli --pass": ("redis-cli --pass Blumentopf77 info", "Blumentopf77"),
    "redis AUTH": ("127.0.0.1:6379> AUTH Blumentopf77", "Blumentopf77"),
    "curl -u, again": ("curl -s -u shop:hunter2 https://example.com/api", "hunter2"),
    "curl --user, again": ("curl --user 'shop:Blumen topf' https://example.com", "Blumen topf"),
    "curl -u without space": ("curl -ushop:Blumentopf77 https://example.com", "Blumentopf77"),
    "wget": ("wget --user=shop --password=Blumentopf77 https://example.com/f", "Blumentopf77"),
    "sshpass -p": ("sshpass -p hunter2 ssh root@db1", "hunter2"),
    "sshpass -p without space": ("sshpass -pBlumentopf77 scp f db1:", "Blumentopf77"),
    "--password with space": ("backup --password hunter2 --to nas", "hunter2"),
    "--token with equals sign": (
        f"gitlab-runner register --token={word('runner', 20)}",
        word("runner", 20),
    ),
    "--token with space": (
        f"kubeadm join 10.0.0.1:6443 --token abcdef.{hexword('kubeadm', 16)}",
        hexword("kubeadm", 16),
    ),
    "docker login, again": (
        "docker login -u deploy -p Blumentopf77 registry.example.com",
        "Blumentopf77",
    ),
    "helm --set": ("helm upgrade shop ./chart --set db.password=Blumentopf77", "Blumentopf77"),
    "ldapsearch -w": (
        "ldapsearch -x -D cn=admin,dc=example -w Blumentopf77 -b dc=example",
        "Blumentopf77",
    ),
    "mosquitto_pub -P": (
        "mosquitto_pub -h broker -u sensor -P Blumentopf77 -t t -m 1",
        "Blumentopf77",
    ),
    "ipmitool -P": (
        "ipmitool -I lanplus -H 10.0.0.9 -U ADMIN -P Blumentopf77 chassis status",
        "Blumentopf77",
    ),
    "snmpwalk -c": ("snmpwalk -v2c -c Blumentopf77 10.0.0.1 system", "Blumentopf77"),
    "snmpget -A": (
        "snmpget -v3 -u ops -l authPriv -A Blumentopf77 -X Regentonne88 10.0.0.1 sysName.0",
        "Regentonne88",
    ),
    "smbclient -U": ("smbclient //nas/share -U backup%Blumentopf77", "Blumentopf77"),
    "mount.cifs": (
        "mount -t cifs //nas/b /mnt -o username=backup,password=Blumentopf77,vers=3.0",
        "Blumentopf77",
    ),
    "echo into chpasswd": ("echo 'root:Blumentopf77' | chpasswd", "Blumentopf77"),
    "echo into passwd --stdin": ("echo Blumentopf77 | passwd --stdin root", "Blumentopf77"),
    "echo into docker login": (
        "echo Blumentopf77 | docker login -u deploy --password-stdin",
        "Blumentopf77",
    ),
    "echo into sudo -S": ("echo hunter2 | sudo -S systemctl restart nginx", "hunter2"),
    "openssl -passin": ("openssl rsa -in k.pem -passin pass:Blumentopf77", "Blumentopf77"),
    "htpasswd -b": ("htpasswd -b /etc/nginx/.htpasswd shop Blumentopf77", "Blumentopf77"),
    "mongosh -p": (
        "mongosh -u admin -p Blumentopf77 --authenticationDatabase admin",
        "Blumentopf77",
    ),
    "kubectl create secret": (
        "kubectl create secret generic db --from-literal=pin=Blumentopf77",
        "Blumentopf77",
    ),
    "vault kv put": ("vault kv put secret/shop db_pass=Blumentopf77", "Blumentopf77"),
    "SQL identified by": ("CREATE USER 'shop'@'%' IDENTIFIED BY 'Blumentopf77';", "Blumentopf77"),
    "SQL with password": ("ALTER ROLE shop WITH LOGIN PASSWORD 'Blumentopf77';", "Blumentopf77"),
    "nmcli": ("nmcli dev wifi connect Office password Blumentopf77", "Blumentopf77"),
    "rsync password variable": ("RSYNC_PASSWORD=Blumentopf77 rsync -a d nas::b", "Blumentopf77"),
    "restic": ("RESTIC_PASSWORD=Blumentopf77 restic snapshots", "Blumentopf77"),
    "borg": ('export BORG_PASSPHRASE="Blumentopf77"', "Blumentopf77"),
    "process list": (
        "root  812  0.0  0.1 mysqld_exporter --mysqld.password=Blumentopf77 --web.listen=:9104",
        "Blumentopf77",
    ),
    # files
    ".netrc in one line": ("machine git.example.com login deploy password hunter2", "hunter2"),
    ".netrc over lines": (
        "machine git.example.com\n  login deploy\n  password Blumentopf77\n",
        "Blumentopf77",
    ),
    ".pgpass": ("db1:5432:shop:shop:hunter2", "hunter2"),
    ".pgpass with stars": ("*:*:*:postgres:Blumentopf77", "Blumentopf77"),
    "htpasswd, apr1": (f"shop:{APR1}", APR1[15:]),
    "htpasswd, bcrypt": (f"shop:{BCRYPT}", BCRYPT[10:]),
    "htpasswd, SHA-1": (f"shop:{{SHA}}{b64(noise('sha', 20))}", b64(noise("sha", 20))),
    "htpasswd, crypt": ("shop:rqXexS6ZhobKA", "rqXexS6ZhobKA"),
    "shadow, SHA-512": (f"root:{SHA512}:19700:0:99999:7:::", SHA512[25:]),
    "shadow, yescrypt": (f"ops:{YESCRYPT}:19700:0:99999:7:::", YESCRYPT[20:]),
    "shadow, MD5": (f"old:$1$abcdefgh${word('md5c', 22)}:17000:0:99999:7:::", word("md5c", 22)),
    "LDAP userPassword": (
        f"userPassword:: {b64('{SSHA}' + b64(noise('ssha', 24)))}",
        b64("{SSHA}" + b64(noise("ssha", 24))),
    ),
    "Django hash": (
        f"pbkdf2_sha256$870000${word('dsalt', 22)}${b64(noise('djh', 32))}",
        b64(noise("djh", 32)),
    ),
    "argon2 hash": (
        f"$argon2id$v=19$m=65536,t=3,p=4${word('as', 22)}${word('argon', 43)}",
        word("argon", 43),
    ),
    "my.cnf": ("[client]\nuser=root\npassword=Blumentopf77\n", "Blumentopf77"),
    "wpa_supplicant": ('network={\n\tssid="Office"\n\tpsk="Blumentopf77"\n}', "Blumentopf77"),
    "wpa_supplicant, raw": (f"psk={hexword('psk', 64)}", hexword("psk", 64)),
    "hostapd": ("wpa_passphrase=Blumentopf77", "Blumentopf77"),
    "NetworkManager": ("[wifi-security]\nkey-mgmt=wpa-psk\npsk=Blumentopf77", "Blumentopf77"),
    "snmpd.conf": ("rocommunity Blumentopf77 10.0.0.0/8", "Blumentopf77"),
    "snmpd.conf, com2sec": ("com2sec readonly default Blumentopf77", "Blumentopf77"),
    "switch configuration": ("snmp-server community Blumentopf77 RO", "Blumentopf77"),
    "switch enable secret": ("enable secret 5 $1$mERr$" + word("cisco", 22), word("cisco", 22)),
    "SNMP community in YAML": ("snmp:\n  community: Blumentopf77\n", "Blumentopf77"),
    "IPMI in YAML": ("ipmi:\n  user: ADMIN\n  pass: Blumentopf77\n", "Blumentopf77"),
    "MQTT in YAML": (
        "mqtt:\n  broker: 10.0.0.5\n  username: sensor\n  password: Blumentopf77",
        "Blumentopf77",
    ),
    "Home Assistant secrets.yaml": (
        "mqtt_password: Blumentopf77\nhttp_password: Regentonne88",
        "Regentonne88",
    ),
    "mosquitto_passwd": (
        f"sensor:$7$101${b64(noise('ms', 12))}${b64(noise('mosq', 64))}",
        b64(noise("mosq", 64)),
    ),
    "ipsec.secrets": ('10.0.0.1 10.0.0.2 : PSK "Blumentopf77"', "Blumentopf77"),
    "chap-secrets": ('shop\tpptpd\t"Blumentopf77"\t*', "Blumentopf77"),
    "chrony keys": ("1 SHA1 HEX:" + hexword("chrony", 40).upper(), hexword("chrony", 40).upper()),
    "cifs credentials": ("username=backup\npassword=Blumentopf77\ndomain=NAS", "Blumentopf77"),
    "postfix sasl_passwd": (
        "[smtp.example.com]:587 mailer@example.com:Blumentopf77",
        "Blumentopf77",
    ),
    "git credentials": ("https://deploy:Blumentopf77@git.example.com", "Blumentopf77"),
    "AWS credentials": (
        "[default]\naws_access_key_id = AKIA"
        + "Q7ZT2MWV5XLKJH3N\naws_secret_access_key = "
        + b64(noise("aws", 30)),
        b64(noise("aws", 30)),
    ),
    "Rails master key": (f"RAILS_MASTER_KEY={hexword('rails', 32)}", hexword("rails", 32)),
    "Django SECRET_KEY": (
        "SECRET_KEY = 'django-insecure-q0)z" + "@5k&x!7w3v^h=m2p+t$n9r'",
        "5k&x!7w3v^h=m2p+t$n9r",
    ),
    "Flask": ('app.secret_key = b"_5#y2L' + '8z9xec]/"', "8z9xec]/"),
    "WordPress": ("define( 'DB_PASSWORD', 'Blumentopf77' );", "Blumentopf77"),
    "WordPress salt": ("define('AUTH_KEY',         '" + "x|T^k8" + ":~q+Wz-1!pL');", ":~q+Wz-1!pL"),
    "PHP array": ("'password' => 'Blumentopf77',", "Blumentopf77"),
    "Laravel": (f"APP_KEY=base64:{WG_KEY}", WG_KEY),
    "Terraform": ('  password = "Blumentopf77"', "Blumentopf77"),
    "Terraform state": (
        '"attributes": {"master_password": "Blumentopf77", "port": 5432}',
        "Blumentopf77",
    ),
    "tfvars": ('db_passwd = "Blumentopf77"', "Blumentopf77"),
    "properties": ("spring.datasource.password=Blumentopf77", "Blumentopf77"),
    "XML element": ("<password>Blumentopf77</password>", "Blumentopf77"),
    "XML attribute": ('<add name="x" password="Blumentopf77" />', "Blumentopf77"),
    "Maven settings": (
        "<server><id>nexus</id><username>d</username><passphrase>Blumentopf77</passphrase></server>",
        "Blumentopf77",
    ),
    "plist": ("<key>Password</key>\n<string>Blumentopf77</string>", "Blumentopf77"),
    # notations of one and the same thing
    "env": ("DB_PASS=Blumentopf77", "Blumentopf77"),
    "env, double quotes": ('DB_PASS="Blumentopf77"', "Blumentopf77"),
    "env, single quotes, spaces": ("DB_PASS='Blumen topf 77'", "Blumen topf 77"),
    "YAML": ("db_password: Blumentopf77", "Blumentopf77"),
    "YAML, quoted": ("db_password: 'Blumen topf 77'", "Blumen topf 77"),
    "YAML, quoted name": ('"db-password": Blumentopf77', "Blumentopf77"),
    "YAML, nested": ("db:\n  primary:\n    auth:\n      password: Blumentopf77", "Blumentopf77"),
    "YAML, list of mappings": (
        "users:\n- name: shop\n  password: Blumentopf77\n- name: ops",
        "Blumentopf77",
    ),
    "YAML, list of passwords": ("passwords:\n  - Blumentopf77\n  - Regentonne88\n", "Regentonne88"),
    "YAML, block": ("password: |\n  Blumentopf77\nuser: shop", "Blumentopf77"),
    "YAML, folded": ("password: >-\n  Blumentopf77\nuser: shop", "Blumentopf77"),
    "YAML, flow": ("db: {user: shop, password: Blumentopf77, port: 5432}", "Blumentopf77"),
    "YAML, environment of a container": (
        "- name: DB_PASSWORD\n  value: Blumentopf77",
        "Blumentopf77",
    ),
    "JSON, environment of a container": (
        '{"name": "DB_PASSWORD", "value": "Blumentopf77"}',
        "Blumentopf77",
    ),
    "docker inspect": ('"Env": ["PATH=/usr/bin", "DB_PASSWORD=Blumentopf77"]', "Blumentopf77"),
    "compose list": ("environment:\n  - POSTGRES_PASSWORD=Blumentopf77", "Blumentopf77"),
    "kubectl describe pod": (
        "    Environment:\n      DB_PASSWORD:  Blumentopf77\n      PORT:  80",
        "Blumentopf77",
    ),
    "INI": ("[db]\npassword = Blumentopf77 ; changed", "Blumentopf77"),
    "TOML": ('[db]\npassword = "Blumentopf77"', "Blumentopf77"),
    "TOML, inline table": ('db = { user = "shop", password = "Blumentopf77" }', "Blumentopf77"),
    "TOML, list": ('api_keys = ["Blumentopf77", "Regentonne88"]', "Regentonne88"),
    "JSON": ('{"db": {"password": "Blumentopf77"}}', "Blumentopf77"),
    "JSON, escaped in JSON": (
        json.dumps({"body": json.dumps({"password": "Blumentopf77"})}),
        "Blumentopf77",
    ),
    "JSON, list": ('{"tokens": ["Blumentopf77", "Regentonne88"]}', "Regentonne88"),
    "JSON, camel case": ('{"clientSecret": "Blumentopf77"}', "Blumentopf77"),
    "JSON, number": ('{"pin": 481516}', "481516"),
    "Python dict": ("{'user': 'shop', 'password': 'Blumentopf77'}", "Blumentopf77"),
    "Ruby hash": ('{:user=>"shop", :password=>"Blumentopf77"}', "Blumentopf77"),
    "Go struct": ("&{User:shop Password:Blumentopf77 Port:5432}", "Blumentopf77"),
    "keyword argument": ("connect(host='db1', password='Blumentopf77')", "Blumentopf77"),
    "form body": ("user=shop&password=Blumentopf77&next=%2F", "Blumentopf77"),
    "table of psql": (
        " user | password \n------+--------------\n shop | Blumentopf77\n",
        "Blumentopf77",
    ),
    "CSV": ("user,password\nshop,Blumentopf77\n", "Blumentopf77"),
    "logfmt": ('level=info msg="login" user=shop password=Blumentopf77', "Blumentopf77"),
    "vault kv get": (
        "====== Data ======\nKey         Value\n---         -----\npassword    Blumentopf77",
        "Blumentopf77",
    ),
    "shell variable": ("set -x\n+ TOKEN=Blumentopf77", "Blumentopf77"),
    "fish": ("set -gx API_TOKEN Blumentopf77", "Blumentopf77"),
    "PowerShell": ('$env:API_TOKEN = "Blumentopf77"', "Blumentopf77"),
    "Dockerfile": ("ENV API_TOKEN Blumentopf77", "Blumentopf77"),
    "systemd": ('Environment="API_TOKEN=Blumentopf77"', "Blumentopf77"),
    "nginx": (
        f'proxy_set_header Authorization "Basic {b64("shop:hunter2")}";',
        b64("shop:hunter2"),
    ),
    "haproxy": ("user shop insecure-password Blumentopf77", "Blumentopf77"),
    "redis.conf": ("requirepass Blumentopf77", "Blumentopf77"),
    "redis.conf, master": ("masterauth Blumentopf77", "Blumentopf77"),
    "redis ACL": ("user shop on >Blumentopf77 ~* +@all", "Blumentopf77"),
    # tokens of providers
    "AWS key id": ("AKIA" + "Q7ZT2MWV5XLKJH3N", "Q7ZT2MWV5XLKJH3N"),
    "AWS secret in env": (
        "AWS_SECRET_ACCESS_KEY=" + b64(noise("aws2", 30)),
        b64(noise("aws2", 30)),
    ),
    "AWS session token": (
        "aws_session_token=" + b64(noise("awss", 200)),
        b64(noise("awss", 200))[40:],
    ),
    "GCP service account": (
        json.dumps({"type": "service_account", "private_key": "\n".join(PKCS8)}),
        PKCS8[3],
    ),
    "GCP API key": ("AI" + "za" + word("gcpk", 35), word("gcpk", 35)),
    "Azure storage": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + b64(noise("az", 64)),
        b64(noise("az", 64)),
    ),
    "Azure client secret": (word("azc", 3) + "8Q" + "~" + word("azcs", 34), word("azcs", 34)),
    "GitHub": ("ghp" + "_" + word("gh", 36), word("gh", 36)),
    "GitHub fine-grained": (
        "github" + "_pat_" + word("ghf", 22) + "_" + word("ghf2", 59),
        word("ghf2", 59),
    ),
    "GitLab": ("glpat" + "-" + word("gl", 20), word("gl", 20)),
    "GitLab deploy token": ("gldt" + "-" + word("gld", 20), word("gld", 20)),
    "Slack bot": ("xoxb" + "-2048-4096-" + word("slack", 24), word("slack", 24)),
    "Slack webhook": (
        "https://hooks.slack.com/services/" + "T0AAAAAAA/B0BBBBBBB/" + word("hook", 24),
        word("hook", 24),
    ),
    "Stripe": ("sk" + "_live_" + word("stripe", 24), word("stripe", 24)),
    "npm, again": ("npm" + "_" + word("npm", 36), word("npm", 36)),
    "npmrc, again": ("//registry.npmjs.org/:_authToken=" + word("npmrc", 36), word("npmrc", 36)),
    "PyPI": ("pypi" + "-AgEIcHlwaS5vcmc" + word("pypi", 60), word("pypi", 60)),
    "Telegram": (
        "https://api.telegram.org/bot" + "6123456789:AA" + word("tg", 33) + "/getMe",
        word("tg", 33),
    ),
    "Discord": (
        b64("815162342108815162") + "." + word("dc2", 6) + "." + word("dc3", 38),
        word("dc3", 38),
    ),
    "Hugging Face": ("hf" + "_" + word("hf", 34), word("hf", 34)),
    "OpenAI": ("sk-" + "proj-" + word("oai", 60), word("oai", 60)),
    "Anthropic": ("sk-" + "ant-api03-" + word("ant", 93) + "AA", word("ant", 93)),
    "Grafana service account": (
        "glsa" + "_" + word("grafana", 32) + "_" + hexword("gr", 8),
        word("grafana", 32),
    ),
    "Grafana cloud": ("glc" + "_" + IN_BASE64["grafana cloud"], IN_BASE64["grafana cloud"][10:]),
    "Grafana API key": (IN_BASE64["grafana key"], IN_BASE64["grafana key"][10:]),
    "Home Assistant token": (f"long lived token {HA_TOKEN}", HA_TOKEN.rsplit(".", 1)[1]),
    "Tailscale": ("tskey" + "-auth-" + word("ts", 17) + "-" + word("ts2", 32), word("ts2", 32)),
    "Cloudflare token": ("CLOUDFLARE_API_TOKEN=" + word("cf", 40), word("cf", 40)),
    "Cloudflare key": (f"X-Auth-Key: {hexword('cfk', 37)}", hexword("cfk", 37)),
    "Cloudflare origin CA key": (
        "v1.0-" + hexword("cfo", 24) + "-" + hexword("cfo2", 146),
        hexword("cfo2", 146),
    ),
    "Cloudflare tunnel": (
        "cloudflared tunnel run --token " + IN_BASE64["tunnel"],
        IN_BASE64["tunnel"][20:],
    ),
    "Vault token": ("hvs" + "." + word("hvs", 90), word("hvs", 90)),
    "Vault token, old": ("Initial Root Token: s" + "." + word("vault", 24), word("vault", 24)),
    "Consul token": (
        "CONSUL_HTTP_TOKEN=12ab34cd-56ef-78ab-90cd-" + hexword("consul", 12),
        hexword("consul", 12),
    ),
    "service account token": (ACCOUNT_JWT, ACCOUNT_JWT.rsplit(".", 1)[1][50:]),
    "service account token, body": (ACCOUNT_JWT, ACCOUNT_JWT.split(".")[1]),
    "JWT in a cookie": (f"Cookie: jwt={HA_TOKEN}", HA_TOKEN.rsplit(".", 1)[1]),
    "DigitalOcean": ("dop" + "_v1_" + hexword("do", 64), hexword("do", 64)),
    "Hetzner": ("HCLOUD_TOKEN=" + word("hetzner", 64), word("hetzner", 64)),
    "SendGrid": ("SG" + "." + word("sg", 22) + "." + word("sg2", 43), word("sg2", 43)),
    "Sentry DSN": (
        f"https://{hexword('sentry', 32)}@o1.ingest.sentry.io/42",
        hexword("sentry", 32),
    ),
    "k3s node token": (
        "K10" + hexword("k3s", 64) + "::server:" + hexword("k3s2", 32),
        hexword("k3s2", 32),
    ),
    "Docker swarm": (
        "SWMTKN-1-" + word("swm", 50).lower() + "-" + word("swm2", 25).lower(),
        word("swm2", 25).lower(),
    ),
    "1Password": ("ops" + "_" + IN_BASE64["1password"], IN_BASE64["1password"][20:]),
    "PagerDuty": ("PAGERDUTY_ROUTING_KEY=" + hexword("pd", 32), hexword("pd", 32)),
    "healthchecks ping key": (f"ping_key: {word('hc', 22)}", word("hc", 22)),
    "New Relic": ("NRAK" + "-" + word("nr", 27).upper(), word("nr", 27).upper()),
    "Datadog": (f"DD_API_KEY={hexword('dd', 32)}", hexword("dd", 32)),
}
SECRETS |= {
    text: (text, secret)
    for text, secret in (
        ("password is: hunter2", "hunter2"),
        ("the admin password is now `s3cr3t!`", "s3cr3t!"),
        ("root pw: hunter2", "hunter2"),
        ("pw=hunter2", "hunter2"),
        ("PW: hunter2x9", "hunter2x9"),
        ("user/pass: admin/hunter2", "hunter2"),
        ("The new password is Sommer2025!", "Sommer2025"),
        ("Das neue Passwort lautet: Sommer2025!", "Sommer2025"),
        ("Ihr Passwort: Sommer2025!", "Sommer2025"),
        ("password changed from old123x to new456y", "new456y"),
        ("the database password is 'pa55 word'", "pa55 word"),
        ("my token is abc123def456ghi789jkl", "abc123def456ghi789jkl"),
        ('psql "host=db1 password=hunter2"', "hunter2"),
        ("mysql --password='hunter2' -u root", "hunter2"),
        ("mysqldump -u root --password hunter2 shop", "hunter2"),
        ('mysql -uroot -p"hunter2"', "hunter2"),
        ("pg_dump postgresql://u:hunter2@h/d", "hunter2"),
        ("redis-cli -u redis://:hunter2@h:6379", "hunter2"),
        ('curl -H "X-API-Key: abcd1234efgh" https://x', "abcd1234efgh"),
        ("curl --header 'Authorization: Bearer abcd1234efgh'", "abcd1234efgh"),
        ('curl -d \'{"password":"hunter2"}\' https://x', "hunter2"),
        ("curl -d 'user=a&pass=hunter2' x", "hunter2"),
        ("http -a user:hunter2 GET x", "hunter2"),
        ("wget --http-password=hunter2 x", "hunter2"),
        ("aws configure set aws_secret_access_key abcDEF123456abcDEF123456", "abcDEF123456"),
        ("vault login hvs." + word("q", 30), word("q", 30)),
        ("vault login -method=userpass username=a password=hunter2", "hunter2"),
        ("consul acl token: 12345678-1234-1234-1234-123456789abc", "123456789abc"),
        ("kubectl config set-credentials a --token=abc123def456", "abc123def456"),
        ("ansible-playbook -e db_password=hunter2 x.yml", "hunter2"),
        ("ansible_become_pass: hunter2", "hunter2"),
        ("ansible_ssh_pass=hunter2", "hunter2"),
        ("sudo_password: hunter2", "hunter2"),
        (
            "smbpasswd: bob:1001:"
            + hexword("lm", 32).upper()
            + ":"
            + hexword("nt", 32).upper()
            + ":[U]:",
            hexword("nt", 32).upper(),
        ),
        ("bindpw hunter2", "hunter2"),
        ("bind_pw: hunter2x", "hunter2x"),
        ("rootpw {SSHA}" + b64(noise("r", 24)), b64(noise("r", 24))),
        ("olcRootPW: hunter2", "hunter2"),
        ("ldap_default_authtok = hunter2", "hunter2"),
        ("smtp_sasl_password_maps = static:user:hunter2", "hunter2"),
        ("smtp_pass: hunter2", "hunter2"),
        ("EMAIL_HOST_PASSWORD = 'hunter2'", "hunter2"),
        ("DATABASE_URL=mysql://u:hunter2@h/d", "hunter2"),
        ("GF_SECURITY_ADMIN_PASSWORD=hunter2", "hunter2"),
        ("MINIO_ROOT_PASSWORD: hunter2", "hunter2"),
        ("MINIO_SECRET_KEY=hunter2xx", "hunter2xx"),
        ("RABBITMQ_DEFAULT_PASS=hunter2", "hunter2"),
        ("RABBITMQ_ERLANG_COOKIE=ABCDEFGHIJ1234", "ABCDEFGHIJ1234"),
        ("JWT_SECRET: hunter2", "hunter2"),
        ("session_secret = hunter2", "hunter2"),
        ("cookie_secret: abcdefg12345", "abcdefg12345"),
        ("NEXTAUTH_SECRET=abc/def+123=", "abc/def+123"),
        ("TELEGRAM_BOT_TOKEN=123456:ABC-def", "ABC-def"),
        ("slack: xoxp-1-2-3-" + hexword("x", 32), hexword("x", 32)),
        ("SENTRY_DSN=https://" + hexword("s", 32) + "@sentry.io/1", hexword("s", 32)),
        ("eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ." + word("sig", 43), word("sig", 43)),
        ("wpa-psk hunter2abc", "hunter2abc"),
        ("option key 'hunter2abc'", "hunter2abc"),
        ('ppp: password "hunter2"', "hunter2"),
        ("username admin password 7 094F471A1A0A", "094F471A1A0A"),
        ("username admin privilege 15 secret 9 $9$abc$" + word("c9", 40), word("c9", 40)),
        (
            'set system root-authentication encrypted-password "$6$abc$' + word("j", 60) + '"',
            word("j", 60),
        ),
        ("community string: hunter2x", "hunter2x"),
        ("createUser ops SHA hunter2abc AES regen888", "regen888"),
        ("ipmitool user set password 2 hunter2x", "hunter2x"),
        ("ipmitool -H h -U a -Phunter2x power status", "hunter2x"),
        ("racadm -r h -u root -p hunter2x getsysinfo", "hunter2x"),
        ("mosquitto_passwd -b /etc/m/p sensor hunter2x", "hunter2x"),
        ("mosquitto_sub -u a --pw hunter2x", "hunter2x"),
        ("openssl passwd -6 hunter2x", "hunter2x"),
        ("mkpasswd hunter2x", "hunter2x"),
        ("useradd -p hunter2x bob", "hunter2x"),
        ("usermod --password hunter2x bob", "hunter2x"),
        ("passwd: hunter2x", "hunter2x"),
        ("zip -e -P hunter2x a.zip b", "hunter2x"),
        ("7z a -phunter2x a.7z b", "hunter2x"),
        ("gpg --passphrase hunter2x -d f", "hunter2x"),
        ("borg init: BORG_PASSPHRASE='hunter2 x'", "hunter2 x"),
        ("rclone: pass = hunter2x", "hunter2x"),
        ("openstack --os-password hunter2x server list", "hunter2x"),
        ("OS_PASSWORD=hunter2x", "hunter2x"),
        ("az login --service-principal -u a -p hunter2x --tenant t", "hunter2x"),
        ("oc login -u a -p hunter2x", "hunter2x"),
        ("cryptsetup: echo -n hunter2x | cryptsetup open /dev/sda x -", "hunter2x"),
        ("-----BEGIN DSA PRIVATE KEY-----\n" + RSA[0] + "\n-----END DSA PRIVATE KEY-----", RSA[0]),
        (
            "data: {tls.key: " + b64("-----BEGIN PRIVATE KEY-----\nabc") + "}",
            b64("-----BEGIN PRIVATE KEY-----\nabc"),
        ),
        (
            "  key: " + b64("\n".join(["-----BEGIN RSA PRIVATE KEY-----"] + RSA)),
            b64("\n".join(["-----BEGIN RSA PRIVATE KEY-----"] + RSA))[200:260],
        ),
        (
            "\n".join(wrapped("\n".join(["-----BEGIN RSA PRIVATE KEY-----"] + RSA).encode(), 76)),
            wrapped("\n".join(["-----BEGIN RSA PRIVATE KEY-----"] + RSA).encode(), 76)[5],
        ),
        ("Card: 4242 4242 4242 4242", "4242 4242"),
        ("cc=378282246310005", "378282246310005"),
        ("card_number: '5555-5555-5555-4444'", "5555-5555"),
        ("2FA backup codes:\n12345678 23456789\n34567890 45678901", "45678901"),
        ("Wiederherstellungscodes:\n- abcd-1234\n- efgh-5678", "efgh-5678"),
        ("Recovery code: ABCD1-EFGH2-IJKL3", "EFGH2"),
        ("Your recovery codes: \n\n1) 9f8e7d6c\n2) 1a2b3c4d", "1a2b3c4d"),
        (
            "seed phrase: legal winner thank year wave sausage worth useful legal "
            "winner thank yellow",
            "sausage",
        ),
        ("totp: JBSWY3DPEHPK3PXP", "JBSWY3DPEHPK3PXP"),
        ("OTP secret key: JBSWY3DPEHPK3PXP", "JBSWY3DPEHPK3PXP"),
        ("authenticator key (manual): JBSW Y3DP EHPK 3PXP", "EHPK 3PXP"),
        ("access_key_secret: abcdefgh1234", "abcdefgh1234"),
        ("s3.secret-key=abcd1234efgh", "abcd1234efgh"),
        ("storageAccountKey = abcd1234efgh==", "abcd1234efgh"),
        ("SharedAccessKey=abcd1234efghijkl=;Entity", "abcd1234efghijkl"),
        ("'password' : u'hunter2'", "hunter2"),
        ("password => hunter2", "hunter2"),
        ('@password = "hunter2"', "hunter2"),
        ("$password = 'hunter2';", "hunter2"),
        ('char *password = "hunter2";', "hunter2"),
        ("Password=hunter2;Persist Security Info=True", "hunter2"),
        ("<Password>hunter2</Password>", "hunter2"),
        ('<property name="password">hunter2</property>', "hunter2"),
        ('<entry key="password">hunter2</entry>', "hunter2"),
        ('<connection url="x" pwd="hunter2"/>', "hunter2"),
        ("password\thunter2", "hunter2"),
        ("Username: bob\nPassword: hunter2", "hunter2"),
        ("User bob Password hunter2x", "hunter2x"),
        ('"db": {"user": "a", "pw": "hunter2x"}', "hunter2x"),
        ('{"passwd":"hunter2"}', "hunter2"),
        ('env:\n  DB_PASSWORD: "hunter2"', "hunter2"),
        ('args: ["--password", "hunter2x"]', "hunter2x"),
        ('["mysql", "-phunter2x"]', "hunter2x"),
        ("-e MYSQL_ROOT_PASSWORD=hunter2", "hunter2"),
        ("command: redis-server --requirepass hunter2x", "hunter2x"),
        ("CREATE ROLE a LOGIN PASSWORD 'hunter2'", "hunter2"),
        ("SET PASSWORD FOR 'a'@'%' = PASSWORD('hunter2')", "hunter2"),
        ("ALTER USER a IDENTIFIED WITH mysql_native_password BY 'hunter2'", "hunter2"),
        ("ACL SETUSER a on >hunter2x ~* +@all", "hunter2x"),
        ("CONFIG SET requirepass hunter2x", "hunter2x"),
        ("db.createUser({user:'a',pwd:'hunter2x'})", "hunter2x"),
    )
}

IMAGE = b64(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + noise("image", 300))
CERTIFICATE = wrapped(bytes.fromhex("3082031d30820205a003020102021431") + noise("certificate", 700))
PUBLIC = wrapped(
    bytes.fromhex("30820122300d06092a864886f70d01010105000382010f003082010a0282010100")
    + noise("spki", 261)
)

HARMLESS = (
    "passwd:         files systemd",
    "passwd: compat sss",
    "pass=12345 fail=0",
    "PASS: test_restart",
    "openssl s_client -connect host:443 -k",
    "curl -k https://127.0.0.1:8443/health",
    "ssh -P 2222 host",
    "echo restarted | sudo tee /var/log/restarts",
    "upskill = yes",
    "",
    "disk is 100% full",
    "GET /health 200 in 3 ms",
    "nginx 1.25.3 (up 3 days)",
    "http://127.0.0.1:8000/status",
    "http://127.0.0.1:8000?mail=a@b.example",
    "git@github.com:shop/web.git",
    "ssh://git@git.example.org:2222/shop/web.git",
    f"sha256:{HEX}",
    f"nginx@sha256:{HEX}",
    f"Digest: sha512:{HEX}{HEX}",
    f"commit {HEX[:40]}",
    "b9f714f Lead a contributor to the gate",
    f"container {HEX[:12]} is running",
    f"docker rm {HEX}",
    "0a0a0a0a-0000-4000-8000-000000000001",
    "toolu_01A09q90qw90lq917835lq9",
    "msg_013Zva2CMHLNnjNjJKqJ2EF",
    "req_011CSHoEeqs5C35K2UUqR7Fy",
    "2026-11-16T20:00:38.123456+00:00",
    "claude-opus-4-1-20250805",
    "v1.28.3-rc.1+build.20260101",
    "Failed password for root from 10.0.0.7 port 22",
    "password reset was sent",
    "Enter password:",
    "Password: ",
    "password = getpass()",
    "password = os.environ['DB_PASSWORD']",
    "password=os.environ.get(name)",
    "password = settings.DATABASE_PASSWORD",
    "def login(user: str, password: str) -> None:",
    "login(user=user, password=password)",
    "token: Optional[str] = None",
    'password == "x"',
    'if token != "":',
    "password=$DB_PASSWORD",
    'password="${DB_PASSWORD}"',
    "password: {{ vault_db_password }}",
    "password: <your password>",
    "password: ********",
    'password=""',
    "token_count: 5",
    "max_tokens: 4096",
    '{"input_tokens": 1200, "output_tokens": 88}',
    '"token_type": "bearer"',
    "tokens=50",
    "secretName: web-tls",
    "secretKeyRef:\n  name: web\n  key: dsn",
    "password_file: /run/secrets/db",
    "POSTGRES_PASSWORD_FILE=/run/secrets/db",
    "tokenizer: gpt2",
    "SyntaxError: unexpected token: foo",
    "Invalid token: expired",
    "authorization: required",
    "PWD=/work/shop OLDPWD=/work",
    "pass=3 fail=2 skip=1",
    "backup --password-stdin < file",
    "backup --password-file /etc/backup",
    "docker run -p 8080:80 -u 1000:1000 nginx",
    "mkdir -p /srv/shop/data",
    "ssh -p 2222 web",
    "sudo -u postgres psql",
    "mysql -u root -p shop",
    "risk-assessment of the task-runner",
    "class sk-folding-cube is unused",
    "error: connection refused on port 5432",
    "main.py:12:5:error:undefined",
    "root:x:0:0:root:/root:/bin/bash",
    "-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0 me@host",
    "SHA256:uNiVztksCsDhcc0u9e8BrgJXVGDQbsAm7u5Xq5Rn1Lk",
    "integrity sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrsQ==",
    "/var/lib/docker/overlay2/" + HEX + "/merged/usr/share",
    "s3://bucket/a/very/long/path/with/many/parts/2026/11/16/file.parquet",
    "VGhpcyBpcyBqdXN0IGEgbG9uZyBzZW50ZW5jZSwgbm90IHNlY3JldA==",
    "ami-0abcdef1234567890 i-0123456789abcdef0 vpc-0a1b2c3d",
    "arn:aws:iam::123456789012:role/deploy",
    "CVE-2026-12345 in libssl3 3.0.11-1~deb12u2",
    "fe80::1ff:fe23:4567:890a%eth0",
    "Cookie: none was sent",
    "the key is under the mat",
    "primary_key=True",
    "public_key = ssh-rsa",
    "Tier 1 asked for escalation: web must be restarted.",
    "access_key_id is not set",
    "XDG_SESSION_ID=42 LANG=C.UTF-8",
    "eta 3:15:22, speed 12.5MB/s, 42%",
    "[redacted: github token]",
    "password=[redacted: password] user=app",
    # --- ordinary output of the same programs
    # containers
    "CONTAINER ID   IMAGE          COMMAND                  CREATED       "
    "STATUS       PORTS                  NAMES\n"
    '4f1c2d3e5a6b   nginx:1.27     "/docker-entrypoint.…"   2 hours ago   Up 2 '
    "hours   0.0.0.0:80->80/tcp     web",
    "REPOSITORY   TAG    IMAGE ID       CREATED      SIZE\n"
    "postgres     16     8e4fcb18b9a1   3 weeks ago  432MB",
    f"web@sha256:{hexword('digest', 64)}",
    f"Digest: sha256:{hexword('digest2', 64)}\nStatus: Downloaded newer image for redis:7",
    f'"Id": "{hexword("container", 64)}",\n"Created": "2025-01-02T03:04:05.123456789Z"',
    f"Deleted: sha256:{hexword('layer', 64)}",
    "docker run -d -p 8080:80 --name web nginx:1.27",
    "docker secret ls\nID                          NAME        CREATED       UPDATED\n"
    "p0x9q2w8e7r6t5y4u3i2o1p0a   db_pass     2 days ago    2 days ago",
    f"overlay on /var/lib/docker/overlay2/{hexword('overlay', 64)}/merged type overlay",
    'time="2025-01-02T03:04:05Z" level=info msg="API listen on /run/docker.sock"',
    # Kubernetes
    "NAME                    READY   STATUS    RESTARTS   AGE\n"
    "shop-7d9c6b8f5d-x2k4q   1/1     Running   0          3d4h",
    "NAME          TYPE                DATA   AGE\n"
    "shop-db       Opaque              2      41d\n"
    "regcred       kubernetes.io/dockerconfigjson   1   41d",
    "secret/shop-db created",
    "    Mounts:\n"
    "      /var/run/secrets/kubernetes.io/serviceaccount from "
    "kube-api-access-9xk2p (ro)",
    "      DB_PASSWORD:  <set to the key 'password' in secret 'shop-db'>  Optional: false",
    "        - name: DB_PASSWORD\n"
    "          valueFrom:\n"
    "            secretKeyRef:\n"
    "              name: shop-db\n"
    "              key: password",
    "kind: ConfigMap\n"
    "apiVersion: v1\n"
    "data:\n"
    "  LOG_LEVEL: debug\n"
    "  motd: d2VsY29tZQ==\n"
    "metadata:\n"
    "  name: shop",
    "apiVersion: v1\n"
    "kind: ServiceAccount\n"
    "metadata:\n"
    "  name: default\n"
    "secrets:\n"
    "- name: default-token-x2k4q",
    "Name:         shop-db\n"
    "Namespace:    shop\n"
    "Type:  Opaque\n"
    "\n"
    "Data\n"
    "====\n"
    "password:  7 bytes\n"
    "username:  4 bytes",
    'Error from server (NotFound): secrets "shop-db" not found',
    "Warning  FailedMount  2m  kubelet  MountVolume.SetUp failed for volume "
    '"certs" : secret "shop-tls" not found',
    'uid: 8d1f6a2e-5b7c-4e3d-9f0a-1b2c3d4e5f60\nresourceVersion: "48151623"',
    # systemd and journals
    "● nginx.service - A high performance web server\n"
    "     Loaded: loaded (/lib/systemd/system/nginx.service; enabled)\n"
    "     Active: active (running) since Thu 2025-01-02 03:04:05 UTC; 3 days ago\n"
    "   Main PID: 812 (nginx)",
    "Jan 02 03:04:05 db1 sshd[812]: Failed password for invalid user admin "
    "from 192.0.2.7 port 48152 ssh2",
    "Jan 02 03:04:05 db1 sshd[812]: Accepted publickey for ops from 192.0.2.7 "
    "port 48152 ssh2: ED25519 SHA256:" + b64(noise("fp", 32)).rstrip("="),
    "Jan 02 03:04:05 db1 sudo[99]:      ops : TTY=pts/0 ; PWD=/home/ops ; "
    "USER=root ; COMMAND=/usr/bin/systemctl restart nginx",
    "Jan 02 03:04:05 db1 CRON[4815]: (root) CMD (/usr/local/bin/backup.sh --quiet)",
    "Jan 02 03:04:05 db1 kernel: [48151.623421] Out of memory: Killed process "
    "4210 (java) total-vm:8815204kB",
    "Jan 02 03:04:05 db1 systemd[1]: Started Session 42 of User ops.",
    "Jan 02 03:04:05 db1 systemd[1]: systemd-ask-password-console.path: Deactivated successfully.",
    "-- Boot " + hexword("boot", 32) + " --",
    'Jan 02 03:04:05 db1 dockerd[611]: level=warning msg="cleaning up after shim disconnected" id='
    + hexword("shim", 64)
    + " namespace=moby",
    # disks, memory, network
    "Filesystem      Size  Used Avail Use% Mounted on\n"
    "/dev/sda1        98G   62G   32G  67% /\n"
    "tmpfs           7.8G     0  7.8G   0% /dev/shm",
    "              total        used        free      shared  buff/cache   available\n"
    "Mem:       16303428     4815162     2342108      815120     9146158    10324551",
    "top - 03:04:05 up 42 days,  1:02,  1 user,  load average: 0.08, 0.15, 0.16",
    '/dev/sda1: UUID="4f1c2d3e-5a6b-7c8d-9e0f-1a2b3c4d5e6f" BLOCK_SIZE="4096" '
    'TYPE="ext4" PARTUUID="1a2b3c4d-01"',
    "2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500\n"
    "    link/ether 52:54:00:12:34:56 brd ff:ff:ff:ff:ff:ff\n"
    "    inet6 fe80::5054:ff:fe12:3456/64 scope link",
    'tcp   LISTEN 0  511  0.0.0.0:443  0.0.0.0:*  users:(("nginx",pid=812,fd=6))',
    "interface: wg0\n  public key: "
    + b64(noise("wgpub", 32))
    + "\n  private key: (hidden)\n  listening port: 51820",
    "peer: " + b64(noise("wgpeer", 32)) + "\n"
    "  preshared key: (hidden)\n"
    "  endpoint: 192.0.2.7:51820\n"
    "  latest handshake: 1 minute, 2 seconds ago",
    "[Peer]\nPublicKey = " + b64(noise("wgpub2", 32)) + "\nAllowedIPs = 10.0.0.2/32",
    "64 bytes from 192.0.2.7: icmp_seq=1 ttl=57 time=11.4 ms",
    "md0 : active raid1 sdb1[1] sda1[0]\n      976630464 blocks super 1.2 [2/2] [UU]",
    "4503599627370496 bytes (4.5 PB, 4.0 PiB) free",
    # git
    "commit " + hexword("commit", 40) + "\n"
    "Author: Ops <ops@example.com>\n"
    "Date:   Thu Jan 2 03:04:05 2025 +0000\n"
    "\n"
    "    Rotate the database password",
    "9f8e7d6 Add token refresh\n"
    "1a2b3c4 Remove secret scanning from CI\n"
    "5d6e7f8 Fix password reset form",
    "index 1a2b3c4..5d6e7f8 100644\n"
    "--- a/settings.py\n"
    "+++ b/settings.py\n"
    "@@ -1,3 +1,3 @@\n"
    "-DEBUG = True\n"
    "+DEBUG = False",
    f"{hexword('obj', 40)}\trefs/heads/main\n{hexword('obj2', 40)}\trefs/tags/v1.2.3",
    '+    password = os.environ["DB_PASSWORD"]',
    '+        token = request.headers.get("Authorization", "").removeprefix("Bearer ")',
    "remote: Resolving deltas: 100% (815/815), done.\n"
    "To git@github.com:shop/shop.git\n"
    "   1a2b3c4..5d6e7f8  main -> main",
    # web servers
    '192.0.2.7 - - [02/Jan/2025:03:04:05 +0000] "GET /static/app.4f1c2d3e.js '
    'HTTP/1.1" 200 48151 "-" "Mozilla/5.0"',
    '192.0.2.7 - ops [02/Jan/2025:03:04:05 +0000] "POST /login HTTP/1.1" 302 0 '
    '"https://shop.example.com/login?next=/admin/" "curl/8.5.0"',
    "2025/01/02 03:04:05 [error] 812#812: *4210 connect() failed (111: "
    "Connection refused) while connecting to upstream, upstream: "
    '"http://127.0.0.1:8000/"',
    "request_id=8d1f6a2e5b7c4e3d9f0a1b2c3d4e5f60 status=200 duration_ms=42",
    "traceparent: 00-" + hexword("trace", 32) + "-" + hexword("span", 16) + "-01",
    'HTTP/1.1 401 Unauthorized\nWWW-Authenticate: Basic realm="Shop"\nContent-Length: 0',
    'ETag: "' + hexword("etag", 32) + '"\nX-Request-Id: 8d1f6a2e-5b7c-4e3d-9f0a-1b2c3d4e5f60',
    "ssl_certificate     /etc/ssl/certs/shop.pem;\nssl_certificate_key /etc/ssl/private/shop.key;",
    'auth_basic "Restricted";\nauth_basic_user_file /etc/nginx/.htpasswd;',
    # programs and tracebacks
    "Traceback (most recent call last):\n"
    '  File "/srv/shop/db.py", line 42, in connect\n'
    "    password=settings.DB_PASSWORD,\n"
    "KeyError: 'DB_PASSWORD'",
    "psycopg.OperationalError: connection failed: FATAL:  password "
    'authentication failed for user "shop"',
    "ERROR 1045 (28000): Access denied for user 'shop'@'localhost' (using password: YES)",
    'raise ImproperlyConfigured("The SECRET_KEY setting must not be empty.")',
    'java.lang.NullPointerException: Cannot invoke "Token.value()" because "token" is null',
    "SyntaxError: Unexpected token '<', \"<!DOCTYPE \"... is not valid JSON",
    "goroutine 42 [running]:\nmain.(*Server).handle(0xc000123456, {0x7f1a2b3c4d50, 0xc0001a2b3c})",
    "jwt.exceptions.ExpiredSignatureError: Signature has expired",
    # packages
    "ii  libpam-modules:amd64  1.5.2-6+deb12u1  amd64  Pluggable Authentication Modules for PAM",
    "ii  libsecret-1-0:amd64   0.20.5-3         amd64  Secret store\n"
    "ii  passwd  1:4.13+dfsg1-1+b1  amd64  change and administer password",
    "django==5.2.1 \\\n    --hash=sha256:" + hexword("pip", 64),
    '"integrity": "sha512-' + b64(noise("npmhash", 64)) + '"',
    "passlib==1.7.4\npyjwt==2.9.0\npython-dotenv==1.0.1\nsecretstorage==3.3.3",
    "github.com/golang-jwt/jwt/v5 v5.2.1 h1:" + b64(noise("gosum", 32)),
    "Get:1 http://deb.debian.org/debian bookworm/main amd64 openssl amd64 3.0.15-1 [1430 kB]",
    # ids, hashes and encodings
    "8d1f6a2e-5b7c-4e3d-9f0a-1b2c3d4e5f60",
    hexword("md5", 32) + "  backup.tar.gz",
    hexword("sha", 64) + "  /srv/backup/shop.dump",
    "snapshot " + hexword("restic", 8) + " saved",
    "MD5 (backup.tar.gz) = " + hexword("md5b", 32),
    "1735787045123456 1735787045 1735787045.123",
    "trace 4815162342108815 span 16234210881",
    "order 4111111111111112 shipped",
    f"data:image/png;base64,{IMAGE}",
    f'<img src="data:image/png;base64,{IMAGE}">',
    b64("Hello, this is an ordinary greeting without anything in it."),
    f"motd: {b64('Welcome to db1. Maintenance on Sunday.')}",
    "cursor=" + b64('{"page": 4, "after": "2025-01-02"}'),
    b64(noise("gzip", 120)),
    "\n".join([f"{BEGIN}CERTIFICATE-----", *CERTIFICATE, f"{END}CERTIFICATE-----"]),
    "\n".join([f"{BEGIN}PUBLIC KEY-----", *PUBLIC, f"{END}PUBLIC KEY-----"]),
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + word("pub", 43) + " ops@db1",
    "256 SHA256:" + b64(noise("fp2", 32)).rstrip("=") + " ops@db1 (ED25519)",
    "db1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + word("known", 43),
    "Recipients: age1" + word("recipient", 58).lower(),
    "pub   rsa4096 2024-01-01 [SC]\n      "
    + hexword("gpg", 40).upper()
    + "\nuid           [ultimate] Ops <ops@example.com>",
    # metrics and schedules
    'sum(rate(http_requests_total{job="shop",code=~"5.."}[5m])) by (instance) > 0.05',
    "histogram_quantile(0.99, sum by (le) (rate(token_refresh_seconds_bucket[10m])))",
    'vault_token_count{namespace="root"} 42\nprocess_open_fds{job="token-service"} 4815',
    "*/5 * * * * root /usr/local/bin/check-certs --days 30 >/dev/null 2>&1",
    "0 3 * * 0 backup restic forget --keep-daily 7 --password-file /etc/restic/password",
    "input_tokens: 48151 output_tokens: 623 cache_read_tokens: 421088",
    "max_tokens=4096 temperature=0.2 stop_reason=end_turn",
    '{"type": "token_count", "tokens": 4815, "total_tokens": 9012}',
    # prose
    "The password is wrong.",
    "The password is stored in the password manager.",
    "the password was changed yesterday",
    "The password has been changed successfully.",
    "the password must be at least 12 characters long",
    "Das Passwort ist falsch.",
    "Das Passwort wurde geändert.",
    "The token is expired; renew it with `vault token renew`.",
    "The secret is mounted at /run/secrets/db.",
    "Set the password with `passwd shop` and restart the service.",
    "I rotated the API key and stored it in the vault.",
    "The key is to restart the database before the web server.",
    "Recovery codes can be generated in the settings.",
    "Backup code review: the script copies /srv/shop to nas1.",
    "Recovery: restart nginx, then check the logs.",
    "Enter passphrase for key '/home/ops/.ssh/id_ed25519':",
    "[sudo] password for ops:",
    "passwd: password expiry information changed.",
    "No password is needed for the replica.",
    "user and password are read from the environment",
    # command lines and configuration without a secret
    "mysql -u root -p shop",
    "mysql -h db1 -P 3306 -u shop",
    "ssh -p 2222 ops@db1",
    "mkdir -p /srv/shop/releases && cp -pr current previous",
    "nmap -p 22,80,443 10.0.0.0/24",
    "curl -u shop https://example.com/api",
    "curl -fsS -o /dev/null -w '%{http_code}' https://example.com/health",
    "redis-cli -h cache1 -p 6379 info memory",
    "kubectl get secrets -n shop",
    "kubectl -n shop get secret shop-db -o jsonpath='{.data.password}' | base64 -d",
    "psql -h db1 -U shop -w -c 'select 1'",
    "PasswordAuthentication no\nPermitRootLogin prohibit-password",
    "password    requisite    pam_pwquality.so retry=3",
    "root:x:0:0:root:/root:/bin/bash\nops:x:1000:1000:Ops:/home/ops:/bin/bash",
    "nobody:*:19700:0:99999:7:::\nsshd:!:19700::::::",
    "password: ${DB_PASSWORD}",
    "DB_PASSWORD_FILE=/run/secrets/db_password",
    'password: "{{ vault_db_password }}"',
    "tokenizer: whitespace\nauthor: ops\nauthority: shop.example.com",
    "rocommunity6 is deprecated",
    "127.0.0.1:6379> PING\nPONG",
    "10.0.0.1:5432:accepting connections",
    f"{ESC}[32m●{ESC}[0m nginx.service\n   Active: {ESC}[1;32mactive (running){ESC}[0m",
    f"{ESC}[33mwarning{ESC}[0m: unused variable: `token`",
    # --- close to a secret
    "the password is required for user admin1",
    "password for db01: (current) UNIX",
    "Failed password for root from 10.0.0.1 port 22 ssh2",
    "password is 12 characters long",
    "the password was last changed on 2025-01-02",
    "password is sha512-crypt hashed",
    "the token is valid until 2025-01-02T03:04:05Z",
    "the secret is shop-db-credentials-v2",
    "token is required for node01",
    "PIN: 1234.5 V",
    "GPIO pin: 17",
    "pin=17",
    "user=bob pass=1 fail=0",
    "recovery codes: 10 left",
    "Backup codes generated at 2025-01-02",
    "backup code path: /srv/x1",
    "order number 4815-1623-4210-8815",
    "phone 0049 1234 5678 9012",
    "2025 0102 0304 0506",
    "build 6011111111111118",
    "card reader 5555",
    "id 3782822463100051",
    "community: we are 42 people",
    "  community: stable",
    "community/redis-7.2.4-r0 x86_64",
    "using password YES2",
    "credentials: shop / production",
    "login: web1 / 10.0.0.1:22",
    "login: ok / 2FA",
    "set password to expire in 90days",
    "changed password policy to strict-v2",
    "updated token to version v1.2.3",
    "password reset link sent to bob1@example.com",
    "password for bob1@example.com: changed",
    "env: API_TOKEN is not set",
    "ENV PATH /usr/bin",
    "ARG TOKEN_VERSION 12",
    "set -e TOKEN",
    "user,token_count\nbob,12345",
    "name,secret\nshop,no",
    "| key | secret |\n|---|---|\n| a | mounted |",
    "NAME   SECRETS   AGE\ndefault   0   3d",
    "Key   Value\nfoo  bar",
    "tokens: [the, quick, brown, fox]",
    '"tokens": ["hello", "world2"]',
    "kind: Secret is an object",
    "data:\n  foo: bar\nkind: Deployment",
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA",
    "1 SHA256 checksum ok",
    "status:Completed1234",
    "image:nginx1alpine",
    "node:Ready12345678",
    "auth: basic",
    "auth: required",
    "auth: enabled123",
    "auth: bWFpbg==",
    "authorization basic is disabled",
    "AUTH LOGIN",
    "S: 250-AUTH PLAIN LOGIN",
    "echo done | tee --stdin",
    "mongo -p 27017",
    "ipmitool -P",
    "snmpget -c",
    "user nginx; worker",
    "user a > b",
    "export const password = (x) =>",
    "function password(a, b) {}",
    "type Password = string;",
    "login shell /bin/bash1",
    'secret "shop1tls" created;',
    "DNS secret rotation",
    "unseal key 1 of 3 accepted",
    '{"name": "token", "value": 5}',
    "name: password\nvalue: required",
    'name: api_token\n  value: ""',
    "psk: enabled",
    "PSK key-mgmt=wpa-psk",
    "http://user@host:8080/x",
    "ssh://git@host:22/x",
    "s3://bucket/key:with:colons@x/y",
    "mailto:bob@example.com",
    "docker login succeeded with password from stdin1",
    "Digest: sha256:" + hexword("d", 64),
    'etag W/"abcdef1234567890"',
    "cursor eyJwYWdlIjo0fQ==",
    "eyJhbGciOiJub25lIn0 header only",
    "b64 SGVsbG8gV29ybGQsIHBhc3N3b3JkIGlzIHJlcXVpcmVk",
    b64("kind: ConfigMap\ndata:\n  a: b\n"),
    b64("-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----\n"),
    "certificate-authority-data: " + b64("-----BEGIN CERTIFICATE-----\n" + "\n".join(CERTIFICATE)),
    "zpool guid 4503599627370496123",
    "inode 5105105105105",
    "4111-1111-1111-1111-1111",
    "0.4111111111111111",
    "v4111111111111111",
    "Password: (unchanged)",
    "password    [success=1 default=ignore]  pam_unix.so obscure yescrypt",
    "passwd[812]: pam_unix(passwd:chauthtok): password changed for bob1",
    "New password: \nRetype new password: \npasswd: password updated successfully",
    "password for user postgres1: ",
    "Password for 'https://bob1@git.example.com': ",
    "Enter PIN for 'YubiKey PIV #12345678': ",
    "pin entry 1.2.1",
    "the PIN is blocked",
    "token: 5 of 10",
    "api key: none",
    "API key is missing",
    "secret key is not configured1",
)
