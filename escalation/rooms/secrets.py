"""Which files and directories of a host no room shows: keys, sockets, homes, this installation."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from sessions_app.models.workdir import our_places

HOMES = ("/root", "/home")
SOCKET_DIRECTORIES = ("/run", "/var/run")

# As root a room could read these; what is not there is passed over.
SECRETS = (
    *("/etc/shadow*", "/etc/gshadow*", "/etc/sudoers*", "/etc/security/opasswd"),
    *("/etc/ssh/*_key", "/etc/ssl/private", "/etc/krb5.keytab", "/etc/wireguard"),
    *("/etc/NetworkManager/system-connections", "/etc/wpa_supplicant", "/etc/ppp/*-secrets"),
    *("/etc/letsencrypt/archive", "/etc/letsencrypt/live", "/etc/kubernetes", "/etc/rancher"),
    *("/etc/openvpn", "/etc/ipsec.secrets", "/etc/netplan", "/etc/msmtprc"),
    *("/var/backups", "/var/lib/rancher/k3s/server", "/var/lib/kubelet/pki"),
    *("/var/lib/sss/secrets", "/var/lib/private"),
)

# Of every home, for the case that a watch names a whole home.
HOME_SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".claude", ".claude.json"),
    *(".netrc", ".git-credentials", ".pgpass", ".my.cnf", ".npmrc", ".pypirc", ".vault-token"),
    *(".config/gh", ".config/gcloud", ".config/rclone", ".password-store", ".local/share/keyrings"),
    *(".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history"),
)

# Engines whose sockets lie outside /run on some systems: whoever connects owns the host.
SOCKETS = (
    *("/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket"),
    *("/var/lib/incus/unix.socket", "/var/lib/libvirt/qemu", "/var/lib/snapd/socket"),
    *("/var/lib/docker/docker.sock", "/var/lib/containerd/containerd.sock"),
)


def installation_paths() -> tuple[Path, ...]:
    """All that is this installation's own, with what lies beside its database."""
    scenarios = settings.CLAUDEOPS_SCENARIOS_DIR
    return (
        *our_places().values(),
        *([Path(scenarios)] if scenarios else []),
        *_database_files(),
    )


def _database_files() -> list[Path]:
    database = settings.DATABASES["default"]
    if not database["ENGINE"].endswith("sqlite3"):
        return []
    return [Path(f"{database['NAME']}{ending}") for ending in ("-wal", "-shm", "-journal")]
