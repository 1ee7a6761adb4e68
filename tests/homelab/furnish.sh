# Furnishes a home lab that has booted: an operator, services, containers, data, and some faults.
# Run by tests/homelab/lab.py as root with `bash -eu`.

useradd --create-home --shell /bin/bash --groups docker,systemd-journal,adm pat
echo 'pat ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/pat
echo '127.0.0.1 nas shop.lab' >> /etc/hosts

# A web shop: a unit with a log, behind nginx. A backup that fails, by timer.
mkdir -p /srv/shop /var/log/shop /etc/shop
echo '<h1>Shop</h1>' > /srv/shop/index.html
echo '{"status": "ok", "version": "1.4.2"}' > /srv/shop/health
printf 'port = 8082\nworkers = 2\nlog = /var/log/shop/app.log\n' > /etc/shop/shop.conf
for n in 1 2 3 4 5 6 7 8; do echo "2026-01-0$n 12:00:0$n INFO order $n shipped"; done > /var/log/shop/app.log
echo '2026-01-09 12:00:09 ERROR payment: connection refused' >> /var/log/shop/app.log
cat > /etc/systemd/system/shop.service << 'UNIT'
[Unit]
Description=The shop
[Service]
User=pat
WorkingDirectory=/srv/shop
ExecStart=/usr/bin/python3 -m http.server 8082
StandardError=append:/var/log/shop/access.log
Restart=on-failure
[Install]
WantedBy=multi-user.target
UNIT
cat > /etc/systemd/system/backup.service << 'UNIT'
[Unit]
Description=Nightly backup
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo "backup: no space left on /home/pat/media" >&2; exit 1'
UNIT
cat > /etc/systemd/system/backup.timer << 'UNIT'
[Unit]
Description=Backup every night
[Timer]
OnCalendar=*-*-* 03:00:00
[Install]
WantedBy=timers.target
UNIT
cat > /etc/nginx/sites-enabled/shop << 'SITE'
server {
    listen 8088;
    server_name shop.lab;
    location / { proxy_pass http://127.0.0.1:8082; }
}
SITE
systemctl daemon-reload
systemctl enable --quiet --now shop.service backup.timer
systemctl start backup.service 2> /dev/null || true
systemctl reload nginx

# Databases.
runuser -u postgres -- psql -q << 'SQL'
create role pat login superuser;
create role root login superuser;
create database shop owner pat;
\c shop
create table orders (id int primary key, state text);
insert into orders select n, case when n % 3 = 0 then 'open' else 'shipped' end from generate_series(1, 12) n;
SQL
redis-cli -n 0 set greeting hello > /dev/null
redis-cli -n 0 rpush jobs a b c > /dev/null

# Data: a file system that is full, and files in places that people look at.
mkdir -p /home/pat/media /home/pat/photos /tmp/uploads /srv/git
mount -t tmpfs -o size=4m tmpfs /home/pat/media
dd if=/dev/zero of=/home/pat/media/film.mkv bs=64k status=none 2> /dev/null || true
dd if=/dev/urandom of=/home/pat/photos/2024.tar bs=1M count=3 status=none
echo 4711 > /tmp/backup.lock
echo 'upload 17 failed: disk full' > /tmp/uploads/17.log
sqlite3 /srv/shop/stock.db 'create table stock (item text, count int); insert into stock values ("tea", 3), ("mugs", 0);'

# Containers. The image is busybox; pg_isready stands in for that of an image with PostgreSQL.
image=$(mktemp -d)
mkdir -p "$image"/{bin,etc,tmp,srv,usr/bin}
cp /bin/busybox "$image/bin/"
for name in sh ls cat ps top sleep echo httpd env df wget id date nc; do ln -s busybox "$image/bin/$name"; done
echo 'root:x:0:0:root:/:/bin/sh' > "$image/etc/passwd"
echo 'hello from the container' > "$image/srv/index.html"
printf '#!/bin/sh\necho "/tmp:5432 - accepting connections"\n' > "$image/usr/bin/pg_isready"
chmod +x "$image/usr/bin/pg_isready"
tar -C "$image" -c . | docker import - lab/busybox:1 > /dev/null
rm -r "$image"

# The working directory of a watch, once for each user, with a repository.
for owner in root pat; do
    home=$(getent passwd $owner | cut -d: -f6)
    lab=$home/lab
    mkdir -p "$lab/config" "$lab/logs" "$home/.ssh"
    cat > "$lab/compose.yaml" << 'COMPOSE'
name: lab
services:
  web:
    image: lab/busybox:1
    command: httpd -f -p 80 -h /srv
    ports: ["8090:80"]
  db:
    image: lab/busybox:1
    command: sh -c 'echo "database system is ready to accept connections"; exec sleep 1000000'
COMPOSE
    printf '# Lab\n\nThe shop (port 8082), the database `shop`, the containers `web` and `db`.\n' > "$lab/CLAUDE-OPS.md"
    printf 'RETRIES=3\nLEVEL=info\n' > "$lab/config/shop.env"
    for n in 1 2 3; do echo "job $n done"; done > "$lab/logs/jobs.log"
    printf '#!/bin/sh\nsystemctl is-active shop\ndf -h / | tail -1\n' > "$lab/check.sh"
    printf '#!/bin/sh\npython3 -m http.server 8082 > /dev/null 2>&1 &\necho restarted\n' > "$lab/restart.sh"
    chmod +x "$lab/check.sh" "$lab/restart.sh"
    git init -q --bare "/srv/git/$owner.git"
    git -C "$lab" init -q -b main
    git -C "$lab" -c user.name=Pat -c user.email=pat@lab.example add .
    git -C "$lab" -c user.name=Pat -c user.email=pat@lab.example commit -q -m 'Describe the lab'
    git -C "$lab" remote add origin "/srv/git/$owner.git"
    git -C "$lab" push -q origin main
    echo 'changed = yes' >> "$lab/config/shop.env"
    ssh-keygen -q -t ed25519 -N '' -f "$home/.ssh/id_ed25519"
    cp "$home/.ssh/id_ed25519.pub" "$home/.ssh/authorized_keys"
    printf 'Host nas\n    HostName 127.0.0.1\n    User %s\n' $owner > "$home/.ssh/config"
    for name in nas 127.0.0.1 localhost; do
        sed "s/^/$name /" /etc/ssh/ssh_host_ed25519_key.pub >> "$home/.ssh/known_hosts"
    done
    chmod -R go= "$home/.ssh"
    [ $owner = root ] || chown -R pat:pat "$home" "/srv/git/$owner.git"
    echo '15 4 * * * /usr/local/bin/rotate-photos' | crontab -u $owner -
done
chown -R pat:pat /var/log/shop /srv/shop

compose='com.docker.compose'
labels() {
    echo "--label=$compose.project=lab --label=$compose.service=$1 --label=$compose.container-number=1" \
        "--label=$compose.oneoff=False --label=$compose.project.working_dir=/home/pat/lab" \
        "--label=$compose.project.config_files=/home/pat/lab/compose.yaml"
}
if docker compose version > /dev/null 2>&1; then
    docker compose --project-directory /home/pat/lab up -d 2> /dev/null
else
    docker run -d --name lab-web-1 $(labels web) -p 8090:80 lab/busybox:1 httpd -f -p 80 -h /srv > /dev/null
    docker run -d --name lab-db-1 $(labels db) lab/busybox:1 sh -c \
        'echo "database system is ready to accept connections"; exec sleep 1000000' > /dev/null
fi
docker run -d --name db lab/busybox:1 sh -c 'echo "ready to accept connections"; exec sleep 1000000' > /dev/null
docker run --name old lab/busybox:1 sh -c 'echo "cannot open /data" >&2; exit 3' 2> /dev/null || true
docker volume create media > /dev/null
