"""Costs added up by day in UTC, which budgets read whatever the time zone is."""

from datetime import UTC
from decimal import Decimal

from django.db import migrations, models
from django.db.models import Count, F, Q, Sum
from django.db.models.functions import Coalesce, TruncDate

NOTHING = Decimal(0)
WITHOUT = Q(cost_usd=None, finished_at__isnull=False)
GUESSED = Q(estimated_cost_usd__isnull=False)
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")


def add_up_costs(apps, schema_editor):
    session, total = (apps.get_model("sessions_app", name) for name in ("Session", "PeriodCost"))
    begun = session.objects.filter(started_at__isnull=False).order_by()
    rows = (
        begun.annotate(
            day=TruncDate("started_at", tzinfo=UTC), number=Coalesce("cycle__watch_id", 0)
        )
        .values("day", "number", "cycle__watch_name", "cycle__drill", "tier", "model")
        .annotate(
            runs=Count("pk"),
            known=Sum("cost_usd", default=NOTHING),
            guesses=Count("pk", filter=WITHOUT & GUESSED),
            guessed=Sum("estimated_cost_usd", filter=WITHOUT & GUESSED, default=NOTHING),
            unknown=Count("pk", filter=WITHOUT & ~GUESSED),
            tokens=Sum(sum((F(name) for name in TOKENS[1:]), F(TOKENS[0])), default=0),
        )
    )
    total.objects.bulk_create(
        [
            total(
                span="utc_day",
                first_day=row["day"],
                watch_number=row["number"],
                watch_name=row["cycle__watch_name"],
                drill=row["cycle__drill"],
                tier=row["tier"],
                model=row["model"],
                runs=row["runs"],
                cost_usd=row["known"],
                estimated=row["guesses"],
                estimated_usd=row["guessed"],
                unknown=row["unknown"],
                tokens=row["tokens"],
            )
            for row in rows.iterator()
        ],
        batch_size=500,
    )


def remove_utc_days(apps, schema_editor):
    apps.get_model("sessions_app", "PeriodCost").objects.filter(span="utc_day").delete()


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0020_tiers_from_settings'),
    ]

    operations = [
        migrations.AlterField(
            model_name='periodcost',
            name='first_day',
            field=models.DateField(help_text='In the time zone of the installation; a day in UTC has its date in UTC.'),
        ),
        migrations.AlterField(
            model_name='periodcost',
            name='span',
            field=models.CharField(choices=[('day', 'day'), ('month', 'month'), ('utc_day', 'day in UTC')], max_length=10),
        ),
        migrations.RunPython(add_up_costs, remove_utc_days),
    ]
