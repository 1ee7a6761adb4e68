"""docker, podman, kubectl, helm, ansible and terraform, as drills and other hosts have them."""

from __future__ import annotations

import pytest

from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE
from tests.escalation.command_policy.vectors import (
    Row,
    assert_is,
    assert_not_understood,
    understood,
)
from tests.tables import each_row

DOCKER = [
    ("docker ps -a --format '{{.Names}}'", "docker ps", LOOK),
    ("docker container ls", "docker ps", LOOK),
    ("docker --context default ps", "docker ps", LOOK),
    ("docker -l debug logs --tail 5 web", "docker logs", LOOK),
    ("docker image ls", "docker images", LOOK),
    ("docker network list", "docker network ls", LOOK),
    ("docker system df", "docker system df", LOOK),
    ("docker system info", "docker info", LOOK),
    ("docker --version", "docker version", LOOK),
    ("docker restart web", "docker restart", SAFE),
    ("docker container restart web", "docker restart", SAFE),
    ("docker --context=x --debug restart -t 5 web", "docker restart", SAFE),
    ("docker stop web", "docker stop", SAFE),
    ("docker start web", "docker start", SAFE),
    ("docker start -ai web", "docker start", FULL),
    ("docker start --attach=true web", "docker start", FULL),
    ("docker cp web:/etc/hosts -", "docker cp", FULL),
    ("docker rm -f web", "docker rm", FULL),
    ("docker run --rm -v /srv/app/data:/data alpine ls", "docker run", FULL),
    ("docker container run -v data:/data alpine", "docker run", FULL),
    ("docker rm -fv web", "docker rm", NEVER),
    ("docker rm --volumes=true web", "docker rm", NEVER),
    ("docker system prune -f", "docker system prune", NEVER),
    ("docker volume remove data", "docker volume rm", NEVER),
    ("docker volume create data", "docker volume create", NEVER),
    ("docker image prune -a", "docker image prune", NEVER),
    ("docker run -v /:/host alpine", "docker run", NEVER),
    ("docker run -v/:/host alpine", "docker run", NEVER),
    ("docker run -v=/:/host alpine ls", "docker run", NEVER),
    ("docker run -v /srv/../etc:/host alpine", "docker run", NEVER),
    ("docker run -v /var/run/docker.sock:/s alpine", "docker run", NEVER),
    ("docker run -v ./..:/h alpine", "docker run", NEVER),
    ("docker run -v /home/me/.ssh:/h alpine", "docker run", NEVER),
    ("docker compose ps", "docker compose ps", LOOK),
    ("docker-compose -f other.yml logs web", "docker compose logs", LOOK),
    ("docker compose config", "docker compose config", LOOK),
    ("docker compose -p shop restart web", "docker compose restart", SAFE),
    ("docker compose -f f down", "docker compose down", FULL),
    ("docker compose up -d", "docker compose up", FULL),
    ("docker compose down -v", "docker compose down", NEVER),
    ("docker compose down --volumes", "docker compose down", NEVER),
    ("docker compose run -v /:/h web", "docker compose run", NEVER),
]


@each_row(("command", "action", "level"), DOCKER)
def test_a_spelling_of_docker_is_seen_as_its_plain_form(command, action, level):
    assert_is(Row(command, action, level, "docker"))


@each_row(
    ("command", "level"),
    [
        ("podman ps -a", LOOK),
        ("podman logs --tail 5 web", LOOK),
        ("podman inspect web", LOOK),
        ("podman restart web", SAFE),
        ("podman stop -t 5 web", SAFE),
    ],
)
def test_podman_needs_the_host(command, level):
    assert_is(Row(command, " ".join(command.split()[:2]), level, "host"))


@each_row(
    "command",
    [
        "docker -H tcp://elsewhere:2375 ps",
        "docker --host=ssh://elsewhere ps",
        "docker --config /tmp/evil ps",
        "docker logs --output x web",
        "docker exec web",
        "docker exec --privileged web ls",
        "docker run --privileged alpine",
        "docker run --privileged=true alpine",
        "docker run --mount type=bind,src=/,dst=/h alpine",
        "docker run --pid host alpine",
        "docker run --pid=host alpine",
        "docker create --cap-add SYS_ADMIN alpine",
        "docker run --device /dev/sda alpine",
        "docker run",
        "docker unknown-plugin",
        "docker container",
        "docker login",
        "docker save web",
        "docker restart --evil web",
        "docker compose config -o x",
        "docker compose watch",
        "docker compose up -V",
        "docker-compose -H tcp://elsewhere ps",
        "podman --runtime /tmp/evil ps",
        "podman ps --runtime /tmp/evil",
        "podman restart --runtime=/tmp/evil web",
        "podman cp web:/x /etc/x",
        "podman run alpine",
        "podman",
        "podman unshare rm -rf /",
    ],
)
def test_what_reaches_another_engine_or_a_file_is_not_understood(command):
    assert_not_understood(command)


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("docker exec web rm -rf /data", ("rm", "-rf", "/data")),
        ("docker container exec -it -u root web sh -c 'reboot'", ("sh", "-c", "reboot")),
        ("docker compose -f f exec -T web ls -l", ("ls", "-l")),
        ("kubectl exec web -- rm -rf /data", ("rm", "-rf", "/data")),
    ],
)
def test_a_command_in_a_container_is_a_command_elsewhere(command, argv):
    found = understood(command)

    assert (found.level, found.elsewhere, found.inner) == (FULL, True, (argv,))


KUBE = [
    ("kubectl get pods -n shop -o wide", "kubectl get", LOOK),
    ("kubectl -n shop --context prod describe pod web", "kubectl describe", LOOK),
    ("kubectl logs -f web --tail=5", "kubectl logs", LOOK),
    ("kubectl rollout status deploy/web", "kubectl rollout status", LOOK),
    ("kubectl config current-context", "kubectl config current-context", LOOK),
    ("kubectl auth can-i get pods", "kubectl auth", LOOK),
    ("kubectl get secrets -o yaml", "kubectl get", FULL),
    ("kubectl get pods,secret/x", "kubectl get", FULL),
    ("kubectl describe secret x", "kubectl describe", FULL),
    ("kubectl config view --flatten", "kubectl config view", FULL),
    ("kubectl get -f secret.yml -o yaml", "kubectl get", FULL),
    ("kubectl get --raw /api/v1/%73ecrets", "kubectl get", FULL),
    ("kubectl -n shop rollout restart deploy/web", "kubectl rollout restart", SAFE),
    ("kubectl scale deploy/web --replicas=2", "kubectl scale", SAFE),
    ("kubectl -n n delete pod web", "kubectl delete", SAFE),
    ("kubectl delete pod/web pod/b", "kubectl delete", SAFE),
    ("kubectl -n n delete deploy web", "kubectl delete", FULL),
    ("kubectl delete pod/web deploy/db", "kubectl delete", FULL),
    ("kubectl apply -f x.yml", "kubectl apply", FULL),
    ("kubectl set image deploy/web web=x:2", "kubectl set image", FULL),
    ("kubectl scale --replicas=0 deployment --all", "kubectl scale", FULL),
    ("kubectl delete ns shop", "kubectl delete", NEVER),
    ("kubectl delete pods --all", "kubectl delete", NEVER),
    ("helm list -A", "helm list", LOOK),
    ("helm template web ./chart -f values.yaml", "helm template", LOOK),
    ("helm --kube-context c upgrade web chart", "helm upgrade", FULL),
]


@each_row(("command", "action", "level"), KUBE)
def test_a_verb_of_the_cluster_has_its_level(command, action, level):
    assert_is(Row(command, action, level, "kube"))


@each_row(
    "command",
    [
        "kubectl",
        "kubectl --kubeconfig /tmp/evil get pods",
        "kubectl --server http://elsewhere get pods",
        "kubectl --token x get pods",
        "kubectl --as admin get pods",
        "kubectl --rm get run --image=evil",
        "kubectl -A get delete pods",
        "kubectl edit deploy/web",
        "kubectl evil-plugin",
        "kubectl exec web ls",
        "kubectl exec web --",
        "kubectl cp web:/x /etc/x",
        "kubectl get pods -- evil",
        "kubectl config set-context x",
        "kubectl rollout",
        "kubectl get pods -o go-template-file=/root/.kube/config",
        "kubectl get pods -o=custom-columns-file=/root/.kube/config",
        "kubectl get pods --output=jsonpath-file=/root/.kube/config",
        "helm",
        "helm --kubeconfig evil list",
        "helm upgrade web chart --post-renderer evil",
        "helm evil-plugin",
        "helm --wait list upgrade",
    ],
)
def test_what_has_other_rights_or_plugins_is_not_understood(command):
    assert_not_understood(command)


@each_row(
    ("command", "action", "level", "grant"),
    [
        ("ansible-playbook site.yml --check", "ansible-playbook", FULL, "ssh"),
        ("ansible-playbook -i hosts plays/web.yml --limit web1", "ansible-playbook", FULL, "ssh"),
        ("ansible all -m ping", "ansible", FULL, "ssh"),
        ("ansible --version", "ansible", LOOK, "ssh"),
        ("terraform -chdir=x plan", "terraform plan", FULL, "network"),
        ("terraform state list", "terraform state list", LOOK, "network"),
        ("terraform validate", "terraform validate", LOOK, "network"),
        ("tofu apply -destroy", "tofu destroy", NEVER, "network"),
        ("terraform destroy", "terraform destroy", NEVER, "network"),
    ],
)
def test_what_acts_on_many_hosts_needs_tier_3(command, action, level, grant):
    assert_is(Row(command, action, level, grant))


@each_row(
    "command",
    ["ansible-playbook --private-key k x.yml", "ansible all --evil", "terraform console"],
)
def test_other_options_of_them_are_not_understood(command):
    assert_not_understood(command)
