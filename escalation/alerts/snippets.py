"""Settings to paste into each kind of sender, and the delivery of a test: pure functions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from sessions_app.models.alert import SourceKind

TEST_NAME = "ClaudeOpsTest"
HEALTHCHECKS_BODY = (
    '{"code": "$CODE", "name": $NAME_JSON, "status": "$STATUS", "tags": "$TAGS", '
    '"exit_status": "$EXITSTATUS", "body": $BODY_JSON, "now": "$NOW"}'
)


def snippet(kind: str, address: str, token: str, secret: str) -> str:
    """Return what the operator pastes into the sender."""
    return _SNIPPETS[SourceKind(kind)](address, token, secret).strip() + "\n"


def _alertmanager(address: str, token: str, secret: str) -> str:
    credentials = f"""
        http_config:
          authorization:
            credentials: {secret}"""
    return f"""
# alertmanager.yml: name this receiver in `route`.
receivers:
  - name: claudeops
    webhook_configs:
      - url: {address}
        send_resolved: true{credentials if secret else ""}
"""


def _grafana(address: str, token: str, secret: str) -> str:
    signature = f"""
            hmacConfig:
              secret: {secret}
              header: X-Grafana-Alerting-Signature
              timestampHeader: X-Claudeops-Timestamp"""
    return f"""
# provisioning/alerting/claudeops.yaml (Grafana 12), or the same fields of a contact point.
# Before 11.6: no hmacConfig, but authorization_scheme: Bearer and authorization_credentials.
apiVersion: 1
contactPoints:
  - orgId: 1
    name: Claude Ops
    receivers:
      - uid: claudeops
        type: webhook
        settings:
          url: {address}
          httpMethod: POST
          http_config:{signature if secret else " {}"}
"""


def _uptime_kuma(address: str, token: str, secret: str) -> str:
    headers = json.dumps({"Authorization": f"Bearer {secret}"})
    return f"""
Settings, Notifications, Setup Notification
  Notification Type:  Webhook
  Post URL:           {address}
  Request Body:       Preset - application/json
  Additional Headers: {headers if secret else "(none)"}
"""


def _healthchecks(address: str, token: str, secret: str) -> str:
    header = f"Authorization: Bearer {secret}" if secret else "(none)"
    request = f"""
  URL:             {address}
  Method:          POST
  Request Body:    {HEALTHCHECKS_BODY}
  Request Headers: {header}"""
    return f"""
Integrations, Webhook. The same for "when a check goes down" and "when a check goes up":{request}
"""


def _generic(address: str, token: str, secret: str) -> str:
    header = f"\n  -H 'Authorization: Bearer {secret}' \\" if secret else ""
    body = {"id": "web-down", "status": "down", "service": "web", "severity": "critical"}
    return f"""
# Instead of the header, a signature of the body: X-Hub-Signature-256: sha256=<HMAC-SHA256, hex>
curl -X POST {address} \\{header}
  -H 'Content-Type: application/json' \\
  -d '{json.dumps({**body, "message": "no answer"})}'
"""


def _pagerduty(address: str, token: str, secret: str) -> str:
    return f"""
# Any sender of PagerDuty's Events API v2. In alertmanager.yml:
receivers:
  - name: claudeops
    pagerduty_configs:
      - url: {address}
        routing_key: {token}
        send_resolved: true
"""


def _alertmanager_api(address: str, token: str, secret: str) -> str:
    parts = urlsplit(address)
    credentials = f"""
      authorization:
        credentials: {secret}"""
    return f"""
# prometheus.yml: alerts are sent without an Alertmanager.
# vmalert and Loki's ruler: the same address, {address}
alerting:
  alertmanagers:
    - scheme: {parts.scheme}
      path_prefix: {parts.path}
      api_version: v2{credentials if secret else ""}
      static_configs:
        - targets: ["{parts.netloc}"]
"""


_SNIPPETS = {
    SourceKind.ALERTMANAGER: _alertmanager,
    SourceKind.GRAFANA: _grafana,
    SourceKind.UPTIME_KUMA: _uptime_kuma,
    SourceKind.HEALTHCHECKS: _healthchecks,
    SourceKind.GENERIC: _generic,
    SourceKind.PAGERDUTY: _pagerduty,
    SourceKind.ALERTMANAGER_API: _alertmanager_api,
}


def sample(kind: str, now: datetime) -> Any:
    """Return a delivery as a sender of this kind writes it, for a test."""
    started = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {"alertname": TEST_NAME, "service": "test", "severity": "info"}
    text = "A test that you sent yourself"
    one = {
        "status": "firing",
        "labels": labels,
        "annotations": {"summary": text},
        "startsAt": started,
        "fingerprint": "claudeops-test",
    }
    group = {"version": "4", "groupKey": "test", "status": "firing", "alerts": [one]}
    samples: dict[SourceKind, Any] = {
        SourceKind.ALERTMANAGER: group,
        SourceKind.GRAFANA: group,
        SourceKind.UPTIME_KUMA: {"heartbeat": None, "monitor": None, "msg": text},
        SourceKind.HEALTHCHECKS: {"code": "test", "name": "TEST", "status": "down"},
        SourceKind.GENERIC: {"id": "test", "status": "down", "service": "test", "message": text},
        SourceKind.PAGERDUTY: {
            "event_action": "trigger",
            "dedup_key": "test",
            "payload": {"summary": text, "source": "test", "severity": "info"},
        },
        SourceKind.ALERTMANAGER_API: [{"labels": labels, "annotations": {"summary": text}}],
    }
    return samples[SourceKind(kind)]
