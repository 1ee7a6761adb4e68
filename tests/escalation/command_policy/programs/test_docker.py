"""docker, podman and compose: the plain form of each spelling, and what no tier may."""

from __future__ import annotations

import pytest

from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE, Inner
from tests.escalation.command_policy.programs.tables import Row, assert_is, understood
from tests.tables import each_row

ROWS = [
    Row("docker ps -a --format '{{.Names}}'", "docker ps", LOOK, "docker"),
    Row("docker container ls", "docker ps", LOOK, "docker"),
    Row("docker --context default ps", "docker ps", LOOK, "docker"),
    Row("docker -l debug logs --tail 5 web", "docker logs", LOOK, "docker"),
    Row("docker logs $computed", "docker logs", LOOK, "docker"),
    Row("docker inspect $computed", "docker inspect", LOOK, "docker"),
    Row("docker image ls", "docker images", LOOK, "docker"),
    Row("docker network ls", "docker network ls", LOOK, "docker"),
    Row("docker system df", "docker system df", LOOK, "docker"),
    Row("docker system info", "docker info", LOOK, "docker"),
    Row("docker cp web:/etc/hosts -", "docker cp", LOOK, "docker"),
    Row("docker cp web:/etc/hosts /tmp/hosts", "docker cp", LOOK, "docker", ("/tmp/hosts",)),
    Row("docker cp web:/etc/hosts here", "docker cp", SAFE, "docker", ("here",)),
    Row("docker save -o image.tar web", "docker save", SAFE, "docker", ("image.tar",)),
    Row("docker restart web", "docker restart", SAFE, "docker"),
    Row("docker container restart web", "docker restart", SAFE, "docker"),
    Row("docker --context=x --debug restart web", "docker restart", SAFE, "docker"),
    Row("docker stop $computed", "docker stop", SAFE, "docker"),
    Row("docker start web", "docker start", SAFE, "docker"),
    Row("docker start -ai web", "docker start", FULL, "docker"),
    Row("docker cp evil web:/etc/hosts", "docker cp", FULL, "docker"),
    Row("docker rm web", "docker rm", FULL, "docker"),
    Row("docker wait web", "docker wait", FULL, "docker"),
    Row("docker run --rm -v /srv/app/data:/data alpine ls", "docker run", FULL, "docker"),
    Row("docker container run -v data:/data alpine", "docker run", FULL, "docker"),
    Row("docker rm -fv web", "docker rm", NEVER, "docker"),
    Row("docker system prune -f", "docker system prune", NEVER, "docker"),
    Row("docker volume rm data", "docker volume rm", NEVER, "docker"),
    Row("docker volume create data", "docker volume create", NEVER, "docker"),
    Row("docker image prune -a", "docker image prune", NEVER, "docker"),
    Row("docker run --privileged alpine", "docker run", NEVER, "docker"),
    Row("docker run --privileged=true alpine", "docker run", NEVER, "docker"),
    Row("docker run -v /:/host alpine", "docker run", NEVER, "docker"),
    Row("docker run -v/:/host alpine", "docker run", NEVER, "docker"),
    Row("docker run -v /srv/../etc:/host alpine", "docker run", NEVER, "docker"),
    Row("docker run -v /var/run/docker.sock:/s alpine", "docker run", NEVER, "docker"),
    Row("docker run --mount type=bind,src=/,dst=/h alpine", "docker run", NEVER, "docker"),
    Row("docker run --mount '\"src=/\",dst=/h,type=bind' alpine", "docker run", NEVER, "docker"),
    Row(
        "docker run --mount src=v,dst=/h,volume-opt=device=/ alpine", "docker run", NEVER, "docker"
    ),
    Row("docker run -v ./..:/h alpine", "docker run", NEVER, "docker"),
    Row("docker run -v /home/me/.ssh:/h alpine", "docker run", NEVER, "docker"),
    Row("docker run --pid host alpine", "docker run", NEVER, "docker"),
    Row("docker run --pid=host alpine", "docker run", NEVER, "docker"),
    Row("docker create --cap-add SYS_ADMIN alpine", "docker create", NEVER, "docker"),
    Row("docker compose ps", "docker compose ps", LOOK, "docker"),
    Row("docker-compose -f other.yml logs web", "docker compose logs", LOOK, "docker"),
    Row("docker compose config", "docker compose config", LOOK),
    Row("docker compose -p shop restart web", "docker compose restart", SAFE, "docker"),
    Row("docker compose -f f down", "docker compose down", FULL, "docker"),
    Row("docker compose up -d", "docker compose up", FULL, "docker"),
    Row("docker compose down -v", "docker compose down", NEVER, "docker"),
    Row("docker rm --volumes=true web", "docker rm", NEVER, "docker"),
    Row("docker run -v=/:/host alpine ls", "docker run", NEVER, "docker"),
    Row("docker start --attach=true web", "docker start", FULL, "docker"),
    Row("docker save -o=/etc/x web", "docker save", SAFE, "docker", ("/etc/x",)),
    Row("docker compose down --volumes", "docker compose down", NEVER, "docker"),
    Row("docker compose run -v /:/h web", "docker compose run", NEVER, "docker"),
    Row("podman ps", "podman ps", LOOK, "host"),
    Row("podman restart web", "podman restart", SAFE, "host"),
]


@each_row("row", ROWS, ids=lambda row: row.command)
def test_a_spelling_is_seen_as_its_plain_form(row):
    assert_is(row)


@each_row(
    "command",
    [
        "docker -H tcp://elsewhere:2375 ps",
        "docker --host=ssh://elsewhere ps",
        "docker --config /tmp/evil ps",
        "docker $computed web",
        "docker container $computed web",
        "docker $computed ps",
        "docker run $computed",
        "docker exec $computed ls",
        "docker exec web",
        "docker exec --privileged web ls",
        "docker unknown-plugin",
        "docker login",
        "docker cp $computed /tmp",
        "docker compose $computed",
        "docker compose down $computed",
        "docker compose watch",
        "docker-compose -H tcp://elsewhere ps",
        "podman --runtime /tmp/evil ps",
        "podman run alpine",
        "podman",
        "podman unshare rm -rf /",
    ],
)
def test_what_cannot_be_read_is_not_understood(command):
    assert understood(command) is None


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("docker exec web rm -rf /data", ("rm", "-rf", "/data")),
        ("docker container exec -it -u root web sh -c 'reboot'", ("sh", "-c", "reboot")),
        ("docker compose -f f exec -T web ls -l", ("ls", "-l")),
    ],
)
def test_a_command_in_a_container_is_a_command_elsewhere(command, argv):
    found = understood(command)

    assert found is not None
    assert found.level == FULL
    assert found.inner == (Inner(argv=argv, elsewhere=True),)
