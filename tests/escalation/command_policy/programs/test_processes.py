"""Programs that show the host's processes, sockets, memory and disks."""

from __future__ import annotations

from escalation.command_policy.understanding import FULL, LOOK, NEVER
from tests.escalation.command_policy.vectors import (
    Row,
    assert_is,
    assert_not_understood,
)
from tests.tables import each_row


@each_row(
    "command",
    [
        "ps aux",
        "ps -eo pid,cmd --sort=-rss",
        "ps -C redis -o user --sort cmd",
        "ps axo user,cmd",
        "ps U postgres",
        "ps -fe",
        "top -b -n 1",
        "top -bn1 -o %MEM",
        "pgrep -af nginx",
        "pidof nginx",
        "pstree -p",
        "ss -tlnp",
        "ss -tn sport = :80",
        "ss state established '( dport = :443 )'",
        "netstat -tlnp",
        "lsof -i :80 -n -P",
        "lsof -r 5 -c 3 +D /var/log",
        "lsof -nP -iTCP -sTCP:LISTEN",
        "lsof -tni :80",
        "lsof +c 15 -u ^root -p 1,2 -d txt -F pcn",
        "lsof +L1 -a /srv",
        "lsof -Fn -p 1 -- /srv",
        "fuser -v 80/tcp",
        "fuser -vm /srv",
        "free -h",
        "vmstat 1 3",
        "iostat -x 1 2",
        "mpstat -P ALL",
        "uptime",
        "w",
        "who -b",
        "last -n 5",
        "df -h /",
        "du -sh --exclude=x /var/log /srv/a\\ b",
        "du -d1 -x /",
        "findmnt /",
        "findmnt -no SOURCE,TARGET /srv",
        "findmnt --df -t ext4",
        "last -n5 -F -x root",
        "who -a -H",
        "who am i",
        "pmap -x 1",
        "lsblk -f",
        "lscpu",
        "lsmod",
        "sensors -u",
        "numactl --hardware",
        "pidstat -d 1 2",
        "sar -u 1 1",
        "arp -an",
        "route -n",
        "ls -la /home",
        "stat -c %U /srv/a\\ b",
        "namei -l /srv",
        "mountpoint /srv",
        "id pat",
        "groups",
        "hostname -I",
        "tree -L 1 /srv",
        "pg_lsclusters -h",
        "networkctl status eth0",
        "systemd-cgls --no-pager",
    ],
)
def test_a_look_has_the_hosts_processes(command):
    assert_is(Row(command, command.split()[0], LOOK, "processes"))


@each_row(
    ("command", "grant"),
    [
        ("ps", "processes"),
        ("ps axf", "processes"),
        ("ps auxww --sort=-%mem", "processes"),
        ("ps axo pid,comm", "processes"),
        ("ps -ef", "processes"),
        ("ps -efH --forest", "processes"),
        ("ps -e -o pid,user,comm --sort=-rss", "processes"),
        ("ps -u postgres -o comm=", "processes"),
        ("ps -C nginx -o pid,cmd", "processes"),
        ("ps -p 1,2 -o comm=", "processes"),
        # Perhaps with environments: read again in the style of BSD.
        ("ps -eu x", "process table"),
        ("ps -e -U nobody", "process table"),
        ("ps -eO u", "process table"),
        ("ps -eTf --forest", "process table"),
        ("ps -ej -o pid", "process table"),
        ("ps -o environ", "process table"),
        ("ps axo pid,environ", "process table"),
        ("ps -o", "process table"),
        ("ps -", "process table"),
    ],
)
def test_a_ps_that_might_print_environments_has_a_table_without_them(command, grant):
    assert_is(Row(command, "ps", LOOK, grant))


@each_row(
    ("command", "action", "level", "grant"),
    [
        ("ip -br addr", "ip addr", LOOK, "processes"),
        ("ip route show", "ip route", LOOK, "processes"),
        ("ip -s -j link", "ip link", LOOK, "processes"),
        ("ip -4 route get 1.1.1.1", "ip route", LOOK, "processes"),
        ("ip", "ip", LOOK, "processes"),
        ("ip link set eth0 up", "ip link set", FULL, "host"),
    ],
)
def test_ip_shows_and_switches_an_interface(command, action, level, grant):
    assert_is(Row(command, action, level, grant))


@each_row(
    "command",
    [
        "top",
        "top -n 1",
        "top -b evil",
        "top -bn1 -o ENVIRON",
        "tree -o x",
        "tree -R -H .",
        "pgrep --env KEY=a",
        "pgrep --en KEY=a",
        "hostname evil",
        "hostname -F x",
        "networkctl down eth0",
        "networkctl reload",
        "ss -K dst 1.2.3.4",
        "ss -tKn",
        "ss --kill dst 1.2.3.4",
        "ss -D /etc/x",
        "ss -F /etc/shadow",
        "ss -N other",
        "lsof -D /etc/x",
        "lsof -nD/etc/x",
        "lsof -oDb",
        "lsof -sDb",
        "lsof +m /etc/shadow",
        "lsof -n +m/etc/shadow",
        "lsof -m /etc/shadow",
        "lsof -k /etc/shadow",
        "lsof -A /srv/shop/evil",
        "users /etc/shadow",
        "iostat -f /root",
        "iostat +f /root",
        "fuser -k 80/tcp",
        "fuser -vk 80/tcp",
        "fuser -KILL /srv",
        "fuser --kill /srv",
        "fuser -i /srv",
        "du --files0-from=/etc/shadow",
        "du --f=/etc/shadow",
        "du -X /etc/shadow",
        "findmnt -F /etc/shadow",
        "findmnt --tab-file=/etc/shadow",
        "findmnt -N 1",
        "findmnt --poll",
        "last -f /etc/shadow",
        "last --file=/etc/shadow",
        "last -n5 -f/etc/shadow",
        "who /etc/shadow",
        "pmap -C /etc/shadow 1",
        "pmap -N /etc/x 1",
        "lsblk --sysroot /srv",
        "lscpu --sysroot=/srv",
        "sensors -s",
        "numactl --cpunodebind=0 evil",
        "numactl -H evil",
        "pidstat -e evil",
        "sar -o /etc/x 1 1",
        "arp -d host",
        "arp -s host 00:00:00:00:00:00",
        "route add default gw 1.1.1.1",
        "ip netns exec x evil",
        "ip netns e x evil",
        "ip vrf exec x evil",
        "ip -b evil",
        "ip -batch evil",
        "ip -n other addr",
        "ip -all netns exec evil",
        "ip link s eth0 down",
        "ip link set eth0 xdp obj evil.o",
        "ip link set eth0 netns 1",
        "ip route add default via 1.1.1.1",
        "ip addr flush dev eth0",
    ],
)
def test_what_writes_signals_or_runs_is_not_understood(command):
    assert_not_understood(command)


@each_row("command", ["ps auxe", "ps axeww", "ps -auxe", "ps e 1", "ps -ef e", "ps -p 1 e"])
def test_variables_of_processes_are_for_no_tier(command):
    assert_is(Row(command, "ps", NEVER, "processes"))
