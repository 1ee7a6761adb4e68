"""What a vector does to which service, as its grammar reads it."""

from __future__ import annotations

from escalation.command_policy.decision import decide
from tests.escalation.command_policy.vectors import judge, policy, request
from tests.tables import each_row

RESTART, REDEPLOY, OTHER = "restart", "redeploy", ("other", "")

DRILLED = [
    ("docker restart web", [(RESTART, "web")]),
    ("docker restart /web", [(RESTART, "/web")]),
    ("docker container restart -t 5 web db", [(RESTART, "web"), (RESTART, "db")]),
    ("docker --log-level error restart --time=3 web", [(RESTART, "web")]),
    ("docker restart web web", [(RESTART, "web")]),
    ("docker restart", [(RESTART, "*")]),
    ("docker kill -s HUP web", [(RESTART, "web")]),
    ("docker unpause web", [(RESTART, "web")]),
    ("docker start web", [(RESTART, "web")]),
    ("docker stop web", [OTHER]),
    ("docker compose restart", [(RESTART, "*")]),
    ("docker compose -f a.yml restart web", [(RESTART, "web")]),
    ("docker compose -p shop up -d web", [(REDEPLOY, "web")]),
    ("docker compose up -d --build", [(REDEPLOY, "*")]),
    ("docker compose up --force-recreate web db", [(REDEPLOY, "web"), (REDEPLOY, "db")]),
    ("docker compose up -d --scale web=3 web", [(REDEPLOY, "web")]),
    ("docker compose pull", [OTHER]),
    ("docker run -d --name web nginx", [(REDEPLOY, "web")]),
    ("docker run -d --name=web nginx", [(REDEPLOY, "web")]),
    ("docker run --rm nginx nginx -t", [OTHER]),
    ("docker service update --force web", [(REDEPLOY, "web")]),
    ("docker stack deploy -c a.yml shop", [(REDEPLOY, "shop")]),
    ("ansible-playbook -i hosts plays/web.yml --limit web1", [(REDEPLOY, "web")]),
    ("docker ps", []),
]


@each_row(("command", "expected"), DRILLED)
def test_the_effect_of_a_stand_in_of_a_drill(command, expected):
    assert effects(command, programs_in=("/drill/bin",)) == expected


SHIMS = [
    ("podman restart web", [(RESTART, "web")]),
    ("systemctl restart nginx", [(RESTART, "nginx")]),
    ("systemctl restart -q nginx php", [(RESTART, "nginx"), (RESTART, "php")]),
    ("systemctl restart 'web*'", [(RESTART, "*")]),
    ("sudo systemctl restart nginx.service", [(RESTART, "nginx.service")]),
    ("systemctl --user restart app@1.service", [(RESTART, "app@1.service")]),
    ("systemctl try-restart nginx", [(RESTART, "nginx")]),
    ("systemctl start nginx", [(RESTART, "nginx")]),
    ("systemctl kill -s HUP nginx", [(RESTART, "nginx")]),
    ("systemctl reload nginx", [OTHER]),
    ("systemctl stop nginx", [OTHER]),
    ("systemctl daemon-reload", [OTHER]),
    ("service nginx restart", [(RESTART, "nginx")]),
    ("apachectl restart", [(RESTART, "apache2")]),
    ("nginx -s reload", [OTHER]),
    ("kill 4711", [OTHER]),
    ("sudo touch x", [OTHER]),
    ("curl -X PUT http://shop/", [OTHER]),
    ("systemctl status nginx", []),
    ("ssh web1 systemctl restart nginx", [(RESTART, "nginx")]),
    ("ssh web1 'docker restart web; docker restart web'", [(RESTART, "web"), (RESTART, "web")]),
    ("ssh web1 'docker stop web && docker start web'", [OTHER, (RESTART, "web")]),
    ("ssh web1 \"sh -c 'docker restart web'\"", [(RESTART, "web")]),
    ("ssh web1 timeout 5 docker restart web", [(RESTART, "web")]),
    ("ssh k kubectl rollout restart deployment/web", [(RESTART, "deployment/web")]),
    ("ssh k kubectl rollout restart deployment web -n shop", [(RESTART, "web")]),
    ("ssh k kubectl delete pod web-5d9c7b4f88-x2x4z", [(RESTART, "web-5d9c7b4f88-x2x4z")]),
    ("ssh k kubectl scale deployment/web --replicas=0", [(RESTART, "deployment/web")]),
    ("ssh k kubectl delete deploy web", [OTHER]),
    ("ssh k kubectl rollout undo deployment/web", [(REDEPLOY, "deployment/web")]),
    ("ssh k kubectl apply -f k8s/web.yaml", [(REDEPLOY, "web")]),
    ("ssh k kubectl set image deployment/web web=x:2", [(REDEPLOY, "deployment/web")]),
    ("ssh k helm upgrade --install web ./chart -n shop", [(REDEPLOY, "web")]),
    ("ssh k helm rollback web 3", [(REDEPLOY, "web")]),
    ("ssh k helm uninstall web", [OTHER]),
    (
        "ssh k \"ansible all -b -m service -a 'name=nginx state=restarted'\"",
        [(RESTART, "nginx")],
    ),
    (
        "ssh k \"ansible all -m ansible.builtin.systemd -a 'state=started name=web'\"",
        [(RESTART, "web")],
    ),
    ("ssh k ansible all -m reboot", [(RESTART, "*")]),
    ("ssh k \"ansible all -m service -a 'name=nginx state=stopped'\"", [OTHER]),
    ("ssh k terraform apply", [(REDEPLOY, "terraform")]),
]


@each_row(("command", "expected"), SHIMS)
def test_the_effect_of_a_vector(command, expected):
    assert effects(command) == expected


def test_a_service_far_behind_in_a_long_vector_is_seen():
    many = [f"service{number}" for number in range(100)]

    found = decide(policy(3), request(f"systemctl restart {' '.join(many)}")).effects

    assert [effect.service for effect in found] == many


def effects(command: str, **changed) -> list[tuple[str, str]]:
    decision = judge(command, 3, **changed)
    assert decision.verdict == "allow", decision.reason
    return [(effect.kind, effect.service) for effect in decision.effects]


@each_row(
    ("command", "host"),
    [
        ("ssh web1 systemctl restart nginx", "web1"),
        ("ssh root@web1 'docker restart web'", "root@web1"),
        ("ssh -p 2222 web1 systemctl restart nginx", ""),
        ("ssh web1 ssh web2 systemctl restart nginx", ""),
        ("systemctl restart nginx", ""),
    ],
)
def test_an_effect_over_ssh_names_its_host(command, host):
    decision = judge(command, 3)

    assert decision.verdict == "allow", decision.reason
    assert [effect.host for effect in decision.effects] == [host]
