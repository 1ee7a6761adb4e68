"""kubectl, helm, the forges, ansible, terraform: programs with the operator's own rights."""

from __future__ import annotations

from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE, Inner
from tests.escalation.command_policy.programs.tables import Row, assert_is, understood
from tests.tables import each_row

KUBE = "kube network"
ROWS = [
    Row("kubectl get pods -n shop -o wide", "kubectl get", LOOK, KUBE),
    Row("kubectl -n shop --context prod describe pod web", "kubectl describe", LOOK, KUBE),
    Row("kubectl logs -f web --tail=5", "kubectl logs", LOOK, KUBE),
    Row("kubectl rollout status deploy/web", "kubectl rollout status", LOOK, KUBE),
    Row("kubectl config current-context", "kubectl config current-context", LOOK, KUBE),
    Row("kubectl get secrets -o yaml", "kubectl get", FULL, KUBE),
    Row("kubectl get pods,secret/x", "kubectl get", FULL, KUBE),
    Row("kubectl config view --raw", "kubectl config view", FULL, KUBE),
    Row("kubectl -n shop rollout restart deploy/web", "kubectl rollout restart", SAFE, KUBE),
    Row("kubectl scale deploy/web --replicas=2", "kubectl scale", SAFE, KUBE),
    Row("kubectl -n n delete pod web", "kubectl delete", SAFE, KUBE),
    Row("kubectl delete pod/web", "kubectl delete", SAFE, KUBE),
    Row("kubectl -n n delete deploy web", "kubectl delete", FULL, KUBE),
    Row("kubectl delete pod/web deploy/db", "kubectl delete", FULL, KUBE),
    Row("kubectl get -f secret.yml -o yaml", "kubectl get", FULL, KUBE),
    Row("kubectl get --raw /api/v1/%73ecrets", "kubectl get", FULL, KUBE),
    Row("kubectl apply -f x.yml", "kubectl apply", FULL, KUBE),
    Row("kubectl delete ns shop", "kubectl delete", NEVER, KUBE),
    Row("kubectl delete pods --all", "kubectl delete", NEVER, KUBE),
    Row("kubectl scale --replicas=0 deployment --all", "kubectl scale", FULL, KUBE),
    Row("helm list -A", "helm list", LOOK, KUBE),
    Row("helm template web ./chart -f values.yaml", "helm template", LOOK, "network"),
    Row("helm show values ./chart", "helm show", LOOK, "network"),
    Row("helm lint ./chart", "helm lint", LOOK, "network"),
    Row("helm --kube-context c upgrade web chart", "helm upgrade", FULL, KUBE),
    Row("gh pr list -R a/b", "gh pr list", LOOK, "network"),
    Row("gh -R a/b pr view 5", "gh pr view", LOOK, "network"),
    Row("gh pr create --title x --body y", "gh pr create", SAFE, "network"),
    Row("gh -R r pr merge 5", "gh pr merge", FULL, "network"),
    Row("gh pr -R r merge 5", "gh pr merge", FULL, "network"),
    Row("gh repo delete a/b", "gh repo delete", NEVER, "network"),
    Row("gh api repos/a/b", "gh api", LOOK, "network"),
    Row("gh api -X DELETE repos/a/b", "gh api", FULL, "network"),
    Row("gh api repos/a/b/issues -f title=x", "gh api", FULL, "network"),
    Row("gh api graphql -X GET", "gh api", FULL, "network"),
    Row("ansible-playbook site.yml --check", "ansible-playbook", FULL, "ssh network"),
    Row("ansible all -m ping", "ansible", FULL, "ssh network"),
    Row("terraform -chdir=x plan", "terraform plan", FULL, "network"),
    Row("tofu apply -destroy", "tofu destroy", NEVER, "network"),
    Row("terraform validate", "terraform validate", LOOK),
]


@each_row("row", ROWS, ids=lambda row: row.command)
def test_a_verb_has_its_level(row):
    assert_is(row)


@each_row(
    "command",
    [
        "kubectl --kubeconfig /tmp/evil get pods",
        "kubectl --server http://elsewhere get pods",
        "kubectl --token x get pods",
        "kubectl --as admin get pods",
        "kubectl get $computed",
        "kubectl $computed pods",
        "kubectl --rm get run --image=evil",
        "kubectl -A get delete pods",
        "kubectl edit deploy/web",
        "kubectl evil-plugin",
        "kubectl exec web ls",
        "helm --kubeconfig evil list",
        "kubectl get pods -o go-template-file=/root/.kube/config",
        "kubectl get pods -o=custom-columns-file=/root/.kube/config",
        "kubectl get pods --output=jsonpath-file=/root/.kube/config",
        "kubectl get pods -o templatefile=/root/.kube/config",
        "helm upgrade web chart --post-renderer evil",
        "helm evil-plugin",
        "helm --wait list upgrade",
        "gh extension exec evil",
        "gh alias set x '!evil'",
        "gh pr $computed",
        "gh pr view --web",
        "gh api repos/a -X GET -F x=@/etc/passwd",
        "gh auth token",
        "gh api https://elsewhere/x",
        "gh api --hostname elsewhere x",
        "gh -R elsewhere/a/b pr list",
        "gh pr list --repo elsewhere/a/b",
        "aws s3 ls",
        "gcloud compute instances list",
    ],
)
def test_what_cannot_be_read_is_not_understood(command):
    assert understood(command) is None


def test_a_command_in_a_pod_is_a_command_elsewhere():
    found = understood("kubectl -n shop exec web -c app -- sh -c reboot")

    assert found is not None
    assert found.level == FULL
    assert found.inner == (Inner(argv=("sh", "-c", "reboot"), elsewhere=True),)
