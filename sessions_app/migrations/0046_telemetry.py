"""Totals for Prometheus, beginning with what the record holds."""

import json

from django.db import migrations, models
from django.db.models import Count, DurationField, ExpressionWrapper, F, Max, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone


def lasting(end, start):
    return Sum(ExpressionWrapper(F(end) - start, output_field=DurationField()))


def add_up(apps, schema_editor):
    names = ("Cycle", "Incident", "Approval", "DailyVerdict", "MetricTotal")
    cycle, incident, approval, verdict, total = (
        apps.get_model("sessions_app", name) for name in names
    )

    def store(name, rows, labels):
        total.objects.bulk_create(
            total(
                name=name,
                labels=json.dumps(
                [str(row[label] or 0) if label == "watch_id" else str(row[label]) for label in labels],
                ensure_ascii=False,
            ),
                count=row["number"],
                seconds=max(0.0, row["took"].total_seconds()) if row.get("took") else 0.0,
                last_at=row.get("last") or timezone.now(),
            )
            for row in rows
        )

    ended = cycle.objects.filter(state="finished", finished_at__isnull=False, drill="").order_by()
    labels = ("watch_id", "watch_name", "outcome")
    store(
        "cycles",
        ended.values(*labels).annotate(
            number=Count("pk"), took=lasting("finished_at", F("created_at")), last=Max("finished_at")
        ),
        labels,
    )
    resolved = incident.objects.filter(state="resolved", resolved_at__isnull=False, drill="")
    store(
        "repairs",
        resolved.order_by()
        .values("resolved_as")
        .annotate(
            number=Count("pk"),
            took=lasting("resolved_at", Coalesce("began_at", "first_seen_at")),
            last=Max("resolved_at"),
        ),
        ("resolved_as",),
    )
    closed = approval.objects.filter(decided_at__isnull=False, session__cycle__drill="")
    store(
        "approvals",
        closed.order_by()
        .values("kind", "state")
        .annotate(
            number=Count("pk"), took=lasting("decided_at", F("asked_at")), last=Max("decided_at")
        ),
        ("kind", "state"),
    )
    # Verdicts were counted without their tier.
    rows = verdict.objects.order_by().values("verdict").annotate(number=Sum("count"))
    store("decisions", [{**row, "tier": ""} for row in rows], ("tier", "verdict"))


class Migration(migrations.Migration):

    dependencies = [
        ("sessions_app", "0045_proposals"),
    ]

    operations = [
        migrations.CreateModel(
            name="MetricTotal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        choices=[
                            ("cycles", "ended cycles"),
                            ("repairs", "resolved incidents"),
                            ("fixes", "fixes that agents reported"),
                            ("approvals", "closed approvals"),
                            ("alerts", "deliveries of alerts"),
                            ("decisions", "decisions on commands"),
                        ],
                        max_length=20,
                    ),
                ),
                ("labels", models.CharField(help_text="List of strings, as JSON.", max_length=500)),
                ("count", models.BigIntegerField(default=0)),
                (
                    "seconds",
                    models.FloatField(
                        default=0, help_text="Sum of what each took; 0 without a duration."
                    ),
                ),
                ("last_at", models.DateTimeField(default=timezone.now)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["name", "labels"], name="one_metric_total")
                ],
            },
        ),
        migrations.RunPython(add_up, migrations.RunPython.noop),
    ]
