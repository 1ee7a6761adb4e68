"""What a change was done to, in one spelling, as the gate read the command."""

from __future__ import annotations

import pytest

from escalation.command_policy.decision import CommandPolicy, decide
from escalation.command_policy.grants import grants_for
from escalation.supervisor.cooldowns import effects_of, service_behind
from tests.tables import each_row

FULL = CommandPolicy(tier=3, grants=grants_for(3), workdir="/srv/shop")
RESTART, REDEPLOY = "restart", "redeploy"

TABLE = [
    ("docker restart web", [(RESTART, "web")]),
    ("docker restart /web", [(RESTART, "web")]),
    ("docker container restart -t 5 web db", [(RESTART, "web"), (RESTART, "db")]),
    ("docker --log-level error restart --time=3 Web", [(RESTART, "web")]),
    ("docker restart shop-web-1", [(RESTART, "web")]),
    ("docker restart shop_web_1", [(RESTART, "web")]),
    ("docker kill web", [(RESTART, "web")]),
    ("docker stop web && docker start web", [("other", ""), (RESTART, "web")]),
    ("podman restart web", [(RESTART, "web")]),
    ("docker compose restart", [(RESTART, "*")]),
    ("docker compose -f a.yml restart web", [(RESTART, "web")]),
    ("docker-compose restart -t 3 web", [(RESTART, "web")]),
    ("docker compose -p shop up -d web", [(REDEPLOY, "web")]),
    ("docker compose up -d --build", [(REDEPLOY, "*")]),
    ("docker compose up --force-recreate web db", [(REDEPLOY, "web"), (REDEPLOY, "db")]),
    ("docker compose up -d --scale web=3 web", [(REDEPLOY, "web")]),
    ("docker compose pull", [("other", "")]),
    ("docker run -d --name web nginx", [(REDEPLOY, "web")]),
    ("docker run -d --name=web nginx", [(REDEPLOY, "web")]),
    ("docker run --rm nginx nginx -t", [("other", "")]),
    ("docker service update --force web", [(REDEPLOY, "web")]),
    ("docker stack deploy -c a.yml shop", [(REDEPLOY, "shop")]),
    ("systemctl restart nginx", [(RESTART, "nginx")]),
    ("sudo systemctl restart nginx.service", [(RESTART, "nginx")]),
    ("systemctl --user restart app@1.service", [(RESTART, "app@1")]),
    ("systemctl try-restart nginx", [(RESTART, "nginx")]),
    ("systemctl start nginx", [(RESTART, "nginx")]),
    ("systemctl reload nginx", [("other", "")]),
    ("systemctl stop nginx", [("other", "")]),
    ("service nginx restart", [(RESTART, "nginx")]),
    ("ssh web1 systemctl restart nginx", [(RESTART, "nginx")]),
    ("sh -c 'docker restart web'", [(RESTART, "web")]),
    ("timeout 5 docker restart web", [(RESTART, "web")]),
    ("kubectl rollout restart deployment/web", [(RESTART, "web")]),
    ("kubectl rollout restart deployment web -n shop", [(RESTART, "web")]),
    ("kubectl delete pod web-5d9c7b4f88-x2x4z", [(RESTART, "web")]),
    ("kubectl scale deployment/web --replicas=0", [(RESTART, "web")]),
    ("kubectl rollout undo deployment/web", [(REDEPLOY, "web")]),
    ("kubectl apply -f k8s/web.yaml", [(REDEPLOY, "web")]),
    ("kubectl set image deployment/web web=x:2", [(REDEPLOY, "web")]),
    ("helm upgrade --install web ./chart -n shop", [(REDEPLOY, "web")]),
    ("helm rollback web 3", [(REDEPLOY, "web")]),
    ("helm uninstall web", [("other", "")]),
    ("ansible all -b -m service -a 'name=nginx state=restarted'", [(RESTART, "nginx")]),
    ("ansible all -m ansible.builtin.systemd -a 'state=started name=web'", [(RESTART, "web")]),
    ("ansible all -m reboot", [(RESTART, "*")]),
    ("ansible all -m service -a 'name=nginx state=stopped'", [("other", "")]),
    ("ansible-playbook -i hosts plays/web.yml --limit web1", [(REDEPLOY, "web")]),
    ("terraform apply", [(REDEPLOY, "terraform")]),
    ("docker restart $(docker ps -q)", [(RESTART, "*")]),
    ("docker restart $X", [(RESTART, "*")]),
    ("docker restart web; docker restart web", [(RESTART, "web"), (RESTART, "web")]),
    ("echo hi > conf.txt", [("other", "")]),
    ("touch x", [("other", "")]),
    ("echo x > /tmp/y; touch /tmp/z", []),
    ("docker ps; systemctl status nginx; docker logs web", []),
]


@each_row(("command", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_what_a_command_does_to_which_service(command, expected):
    effects = effects_of(decide(FULL, command).changes)

    assert [(effect.kind, effect.service) for effect in effects] == expected


def test_a_service_far_behind_in_a_long_command_is_seen():
    many = [f"service{number}" for number in range(100)]

    effects = effects_of(decide(FULL, f"docker restart {' '.join(many)}").changes)

    assert [effect.service for effect in effects] == many


@each_row(
    "command",
    [
        "for i in 1 2 3; do docker restart web; done",
        "for ((i=0; i<3; i++)); do docker restart web; done",
        "while true; do docker restart web; done",
        "until docker restart web; do sleep 1; done",
        "f() { docker restart web; }; f; f",
        "watch -n1 docker restart web",
        "seq 5 | xargs -n1 docker restart web",
        "bash -c 'while true; do docker restart web; done'",
    ],
)
def test_what_may_run_more_than_once_is_told_apart(command):
    assert decide(FULL, command).may_repeat


@pytest.mark.parametrize("command", ["docker restart web", "docker ps && docker restart web"])
def test_what_runs_once_is_not(command):
    assert not decide(FULL, command).may_repeat


@each_row("name", ["web", "Web ", "/web", "web.service", "deploy/web", "shop-web-1"])
def test_one_service_has_one_spelling(name):
    assert service_behind(name) == "web"


@each_row("name", ["", "*", "…", "-", "web" * 500, "shop--1", "\u202eweb", "1-2-3"])
def test_nonsense_has_a_spelling_too(name):
    assert service_behind(service_behind(name)) == service_behind(name) or len(name) < 6
    assert len(service_behind(name)) <= 200
