"""Counts the tokens of killed sessions as their cost, and identifies working directories."""

from datetime import UTC
from decimal import Decimal

from django.db import migrations, models
from django.db.models import F
from django.utils import timezone

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")


def count_measured_costs(apps, schema_editor):
    """An estimate of tokens that the API proxy counted, and of a session without a process."""
    session, total = (apps.get_model("sessions_app", name) for name in ("Session", "PeriodCost"))
    ended = session.objects.filter(
        cost_usd=None, started_at__isnull=False, finished_at__isnull=False
    ).select_related("cycle")
    counted = ended.filter(estimated_cost_usd__isnull=False, spent_so_far_usd__isnull=False)
    for one in counted.iterator(chunk_size=500):
        cost = one.estimated_cost_usd
        _move(total, one, cost_usd=cost, estimated=-1, estimated_usd=-cost)
        session.objects.filter(pk=one.pk).update(
            cost_usd=cost, estimated_cost_usd=None, cost_basis="measured"
        )
    never_started = ended.filter(
        estimated_cost_usd=None,
        reported_cost_usd=None,
        cli_pid=None,
        cli_version="",
        **dict.fromkeys(TOKENS, 0),
    )
    for one in never_started.iterator(chunk_size=500):
        _move(total, one, unknown=-1)
        session.objects.filter(pk=one.pk).update(cost_usd=Decimal(0), cost_basis="measured")


def _move(total, one, **amounts):
    day, utc_day = timezone.localdate(one.started_at), one.started_at.astimezone(UTC).date()
    for span, first_day in (
        ("day", day),
        ("month", day.replace(day=1)),
        ("utc_day", utc_day),
    ):
        total.objects.filter(
            span=span,
            first_day=first_day,
            watch_number=one.cycle.watch_id or 0,
            watch_name=one.cycle.watch_name,
            drill=one.cycle.drill,
            tier=one.tier,
            model=one.model,
        ).update(**{name: F(name) + amount for name, amount in amounts.items()})


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0031_allowed_once"),
    ]

    operations = [
        migrations.AddField(
            model_name="session",
            name="workdir_identity",
            field=models.CharField(
                blank=True,
                help_text="Inode and time of creation of the directory, which tell a replaced one.",
                max_length=64,
            ),
        ),
        migrations.AlterField(
            model_name="session",
            name="cost_basis",
            field=models.CharField(
                blank=True,
                choices=[
                    ("own_share", "reported by the CLI for this session"),
                    ("per_run", "reported by a CLI that counts each session separately"),
                    ("difference", "reported total minus the total of the parent"),
                    (
                        "measured",
                        "measured: counted tokens at the prices of the CLI, without a result",
                    ),
                    ("estimate", "estimated from the stream, without a result"),
                    ("unknown", "unknown, without a result"),
                ],
                max_length=20,
            ),
        ),
        migrations.RunPython(count_measured_costs, migrations.RunPython.noop, elidable=True),
    ]
