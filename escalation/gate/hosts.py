"""What may run on the host itself, where no room hides anything.

A reader of files would show there what every room hides, as root: state, keys, other processes. So
only programs that cannot work in a room are let through, and these by name.
"""

from __future__ import annotations

HOST_PROGRAMS = frozenset(
    {
        *("sudo", "doas", "timeout", "nice", "ionice"),
        *("systemctl", "service", "journalctl", "loginctl", "timedatectl", "hostnamectl"),
        *("dmesg", "kill", "pkill", "killall", "crontab", "reboot", "shutdown"),
        *("apt", "apt-get", "dpkg", "dnf", "yum", "apk", "pacman", "zypper", "snap"),
        *("ufw", "iptables", "ip6tables", "nft", "ip", "ss", "lsof", "fuser", "netstat"),
        *("mount", "umount", "swapon", "swapoff", "sysctl", "fstrim", "smartctl", "lsblk"),
        *("zpool", "zfs", "btrfs", "mdadm", "lvs", "vgs", "pvs", "blkid"),
        *("fail2ban-client", "certbot", "nginx", "apachectl", "wg", "tailscale", "virsh"),
        *("rm", "mkdir", "rmdir", "chmod", "chown", "touch", "truncate"),
    }
)
