# Furnishes a home lab for remedies: a unit with a pid file that counts signals and requests, a
# cache, logs, a timer and files in the working directories. Run by test_remedies.py as root with
# `bash -eu`.

mkdir -p /var/cache/stock /var/log/stock /var/lib/stock /etc/systemd/system/stock.service.d
touch /var/lib/stock/{hups,posts}
chown -R pat:pat /var/cache/stock /var/log/stock /var/lib/stock
cat > /usr/local/bin/stock-server << 'PROGRAM'
#!/usr/bin/python3
import http.server, os, signal
def note(name, line):
    with open(f"/var/lib/stock/{name}", "a") as file:
        file.write(f"{line}\n")
signal.signal(signal.SIGHUP, lambda *_: note("hups", "hup"))
with open("/run/stock/stock.pid", "w") as file:
    file.write(str(os.getpid()))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok\n")
    def do_POST(self):
        note("posts", self.path)
        self.do_GET()
http.server.HTTPServer.allow_reuse_address = True
http.server.HTTPServer(("127.0.0.1", 8099), Handler).serve_forever()
PROGRAM
chmod 755 /usr/local/bin/stock-server
printf '[Service]\nUser=pat\nRuntimeDirectory=stock\nExecStart=/usr/local/bin/stock-server\nRestart=always\nRestartSec=200ms\n' \
    > /etc/systemd/system/stock.service
printf '[Service]\nType=oneshot\nExecStart=/bin/touch /var/lib/stock/filled\n' > /etc/systemd/system/fill.service
printf '[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n' > /etc/systemd/system/fill.timer
for unit in nginx stock cron postgresql@ postgresql fill; do
    mkdir -p "/etc/systemd/system/$unit.service.d"
    printf '[Unit]\nStartLimitIntervalSec=0\n' > "/etc/systemd/system/$unit.service.d/limit.conf"
done
printf '/var/log/stock/*.log {\n rotate 3\n create\n su pat pat\n}\n' > /etc/logrotate.d/stock
mkdir -p /mnt/backup
echo 'tmpfs /mnt/backup tmpfs size=1m 0 0' >> /etc/fstab
systemctl daemon-reload
systemctl start stock
touch /var/lib/stock/filled
for lab in /root/lab /home/pat/lab; do
    mkdir -p "$lab/tmp" "$lab/releases/1" "$lab/releases/2"
    printf '[app]\nworkers = 2\n' > "$lab/config/app.ini"
    printf '#!/bin/sh\nset -e\nrm -f tmp/*.lock\nsudo systemctl restart stock\necho restarted\n' > "$lab/again.sh"
    printf 'again:\n\tsudo systemctl restart stock\n' > "$lab/Makefile"
    chmod +x "$lab/again.sh"
    cp "$lab/config/app.ini" "$lab/config/app.ini.bak"
    tar -C "$lab" -czf "$lab/backup.tgz" config/app.ini
    git -C "$lab" -c safe.directory='*' add .
    git -C "$lab" -c safe.directory='*' -c user.name=Pat -c user.email=pat@lab.example commit -q -m 'Add the stock'
    git -C "$lab" -c safe.directory='*' config user.name Pat
    git -C "$lab" -c safe.directory='*' config user.email pat@lab.example
done
chown -R pat:pat /home/pat/lab
