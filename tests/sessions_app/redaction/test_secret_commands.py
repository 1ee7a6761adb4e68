"""Commands whose output is redacted as a whole."""

from __future__ import annotations

from sessions_app.redaction.redact import is_key_file, prints_secrets
from tests.tables import each_row


@each_row(
    "command",
    [
        "kubectl get secret shop-db -o yaml",
        "kubectl -n shop get secrets -ojson",
        "kubectl get -o jsonpath='{.data.password}' secret/shop-db | base64 -d",
        "kubectl get configmap,secret -n shop --output=yaml",
        "kubectl get secrets/shop-db --template='{{.data.password | base64decode}}'",
        "sudo k3s kubectl get secret shop -o go-template='{{.data}}'",
        "oc get secret shop -o json",
        "cd /srv && kubectl get secret shop -o yaml > /tmp/x; cat /tmp/x",
        "kubectl create token default",
        "kubectl config view --raw",
        "wg show wg0 private-key",
        "wg show all dump",
        "sudo wg showconf wg0",
        "wg genkey | tee private.txt | wg pubkey",
        "vault kv get -field=password secret/shop",
        "vault read database/creds/shop",
        "VAULT_ADDR=https://vault:8200 vault read -format=json secret/x",
        "pass show shop/db",
        "pass shop/db",
        "gpg --armor --export-secret-keys ops@example.com",
        "gpg -d secrets.gpg",
        "docker config inspect shop",
        "docker secret inspect shop",
        "age-keygen",
        "age-keygen -o key.txt && cat key.txt",
        "sops -d secrets.yaml",
        "ansible-vault view group_vars/all.yml",
        "openssl rsa -in server.key",
        "openssl rand -base64 32",
        "aws secretsmanager get-secret-value --secret-id shop",
        "aws --profile p ssm get-parameter --name /shop/db --with-decryption",
        "gcloud secrets versions access latest --secret=shop",
        "az keyvault secret show --name shop --vault-name v",
        "gh auth token",
        "op read op://shop/db/password",
        "terraform output -raw db_password",
        "cat ~/.ssh/id_ed25519",
        "cat /root/.ssh/id_*",
        'sudo cat "/etc/ssl/private/shop.key"',
        "head -5 /etc/nginx/ssl/server.pem",
        "base64 -w0 privkey.pem",
        "base64 < /srv/shop/ca-key.pem",
        "docker exec web cat /run/secrets/db_password",
        "kubectl exec web -- cat /var/run/secrets/kubernetes.io/serviceaccount/token",
        "ssh db1 'sudo cat /etc/shadow'",
        "for f in a; do cat server.key; done",
        "echo $(cat server.key)",
        "dd if=/etc/ssl/private/shop.key",
    ],
)
def test_command_that_prints_secrets_is_recognized(command):
    assert prints_secrets(command)


@each_row(
    "command",
    [
        "kubectl get secrets",
        "kubectl get secret shop-db -o name",
        "kubectl get secrets -o wide -n shop",
        "kubectl describe secret shop-db",
        "kubectl get pods -o yaml",
        "kubectl get pods -n secret-santa -o wide",
        "kubectl delete secret shop-db",
        "kubectl create secret generic shop --from-file=a",
        "kubectl config view",
        "wg show",
        "wg show wg0 peers",
        "vault status",
        "vault token lookup",
        "pass ls",
        "pass",
        "gpg --list-secret-keys",
        "docker secret ls",
        "docker inspect web",
        "age-keygen -y key.txt",
        "openssl x509 -in server.pem -noout -dates",
        "openssl rsa -in server.key -noout -check",
        "openssl s_client -connect shop:443",
        "ls -l /etc/ssl/private/",
        "stat ~/.ssh/id_ed25519",
        "chmod 600 server.key",
        "ssh -i ~/.ssh/id_ed25519 db1 cat /etc/hosts",
        "cat ~/.ssh/id_ed25519.pub",
        "cat /etc/ssl/certs/shop.pem",
        "cat /etc/letsencrypt/live/shop/fullchain.pem",
        "cat ca.pem",
        "cat docs/secret-rotation.md",
        "grep -rn password /etc/nginx",
        "cat /etc/passwd",
        "tail -f /var/log/vault/audit.log",
        "git log --grep 'kubectl get secret'",
        "systemctl status vault",
        "terraform output",
        "aws ssm get-parameter --name /shop/mode",
        "docker compose pass",
        "",
    ],
)
def test_other_command_is_not_taken_for_one_that_prints_secrets(command):
    assert not prints_secrets(command)


def test_long_command_is_read_in_time_in_proportion():
    """A pattern that goes back again and again would take minutes."""
    for piece in ("kubectl get ", "aws ", "gpg ", "cat x ", "nmcli -", "sudo wg show ", "pass "):
        assert prints_secrets(piece * 5_000) is prints_secrets(piece * 50)


@each_row(
    ("path", "is_one"),
    [
        ("/root/.ssh/id_rsa", True),
        ("/root/.ssh/id_rsa.pub", False),
        ("/etc/ssh/ssh_host_ed25519_key", True),
        ("/etc/ssh/ssh_host_ed25519_key.pub", False),
        ("/etc/ssl/private/ca.pem", True),
        ("/etc/ssl/ca.pem", False),
        ("/etc/ssl/certs/shop.pem", False),
        ("/srv/ca-key.pem", True),
        ("/etc/ssl/private/ca.key", True),
        ("/run/secrets/ca", True),
        ("/srv/shop/public.key", False),
        ("/srv/shop/settings.py", False),
        ("", False),
    ],
)
def test_key_file_is_told_by_its_path(path, is_one):
    assert is_key_file(path) is is_one
