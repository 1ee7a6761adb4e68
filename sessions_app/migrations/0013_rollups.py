"""Costs and verdicts added up by day, words to search, and an index for each filter of the lists."""

from decimal import Decimal

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Count, F, OuterRef, Q, Subquery, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, TruncDate, TruncMonth

from sessions_app.models.search import forget_all

NOTHING = Decimal(0)
WITHOUT = Q(cost_usd=None, finished_at__isnull=False)
GUESSED = Q(estimated_cost_usd__isnull=False)
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")


def name_the_watches(apps, schema_editor):
    session, cycle = (apps.get_model("sessions_app", name) for name in ("Session", "Cycle"))
    own = cycle.objects.filter(pk=OuterRef("cycle")).values("watch")
    session.objects.update(watch=Subquery(own))


def add_up_costs(apps, schema_editor):
    session, total = (apps.get_model("sessions_app", name) for name in ("Session", "PeriodCost"))
    begun = session.objects.filter(started_at__isnull=False).order_by()
    for span, cut in (("day", TruncDate), ("month", TruncMonth)):
        rows = (
            begun.annotate(start=cut("started_at"), number=Coalesce("cycle__watch_id", 0))
            .values("start", "number", "cycle__watch_name", "cycle__drill", "tier", "model")
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
                    span=span,
                    first_day=row["start"].date() if span == "month" else row["start"],
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


def add_up_verdicts(apps, schema_editor):
    event, total = (apps.get_model("sessions_app", name) for name in ("SessionEvent", "DailyVerdict"))
    judged = event.objects.filter(source="supervisor", kind="gate").order_by()
    rows = (
        judged.annotate(day=TruncDate("created_at"), said=KT("payload__verdict"))
        .values_list("day", "said")
        .annotate(count=Count("pk"))
    )
    total.objects.bulk_create(
        [total(day=day, verdict=said, count=count) for day, said, count in rows if said]
    )


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0012_word'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='DailyVerdict',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField(help_text='In the time zone of the installation.')),
                ('verdict', models.CharField(max_length=20)),
                ('count', models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='PeriodCost',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('span', models.CharField(choices=[('day', 'day'), ('month', 'month')], max_length=10)),
                ('first_day', models.DateField(help_text='In the time zone of the installation.')),
                ('watch_number', models.BigIntegerField(default=0, help_text='No key: what a removed watch cost stays. 0 without a watch.')),
                ('watch_name', models.CharField(blank=True, help_text='As the watch was called when the cycle began.', max_length=100)),
                ('drill', models.CharField(blank=True, max_length=100)),
                ('tier', models.PositiveSmallIntegerField()),
                ('model', models.CharField(max_length=100, verbose_name='model asked for')),
                ('runs', models.BigIntegerField(default=0)),
                ('cost_usd', models.DecimalField(decimal_places=10, default=Decimal('0'), max_digits=20)),
                ('estimated', models.BigIntegerField(default=0, help_text='Runs without a figure of which the stream proves a part.')),
                ('estimated_usd', models.DecimalField(decimal_places=10, default=Decimal('0'), max_digits=20)),
                ('unknown', models.BigIntegerField(default=0, help_text='Runs that have ended and of whose cost nothing is known.')),
                ('tokens', models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='SearchText',
            fields=[
                ('session', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='search_text', serialize=False, to='sessions_app.session')),
                ('text', models.TextField()),
            ],
        ),
        migrations.AddField(
            model_name='session',
            name='watch',
            field=models.ForeignKey(db_index=False, editable=False, help_text="Its cycle's: lists by watch are read along an index of their own.", null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='sessions', to='sessions_app.watch'),
        ),
        migrations.AddIndex(
            model_name='cycle',
            index=models.Index(fields=['state', '-id'], name='cycle_state'),
        ),
        migrations.AddIndex(
            model_name='cycle',
            index=models.Index(fields=['watch', '-id'], name='cycle_watch'),
        ),
        migrations.AddIndex(
            model_name='cycle',
            index=models.Index(fields=['outcome', '-id'], name='cycle_outcome'),
        ),
        migrations.AddIndex(
            model_name='cycle',
            index=models.Index(fields=['trigger', '-id'], name='cycle_trigger'),
        ),
        migrations.AddIndex(
            model_name='cycle',
            index=models.Index(fields=['dry_run', '-id'], name='cycle_dry_run'),
        ),
        migrations.AddIndex(
            model_name='cycle',
            index=models.Index(fields=['created_at'], name='cycle_created'),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(fields=['watch', '-id'], name='session_watch'),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(fields=['tier', '-id'], name='session_tier'),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(fields=['continued_by', '-id'], name='session_continued'),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(fields=['purpose', '-id'], name='session_purpose'),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(fields=['continued_guard', '-id'], name='session_guard'),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(fields=['cost_basis', '-id'], name='session_basis'),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(fields=['model', '-id'], name='session_model'),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(fields=['created_at'], name='session_created'),
        ),
        migrations.AddConstraint(
            model_name='dailyverdict',
            constraint=models.UniqueConstraint(fields=('day', 'verdict'), name='one_daily_verdict'),
        ),
        migrations.AddConstraint(
            model_name='periodcost',
            constraint=models.UniqueConstraint(fields=('span', 'first_day', 'watch_number', 'watch_name', 'drill', 'tier', 'model'), name='one_period_cost'),
        ),
        migrations.AddIndex(
            model_name='conversation',
            index=models.Index(fields=['-last_used_at', '-id'], name='conversation_latest'),
        ),
        migrations.AddIndex(
            model_name='transcript',
            index=models.Index(fields=['-updated_at', '-id'], name='transcript_latest'),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(condition=models.Q(('parent_session__isnull', False)), fields=['-id'], name='session_step'),
        ),
        migrations.RunPython(name_the_watches, migrations.RunPython.noop),
        migrations.RunPython(add_up_costs, migrations.RunPython.noop),
        migrations.RunPython(add_up_verdicts, migrations.RunPython.noop),
        migrations.RunPython(migrations.RunPython.noop, forget_all),
    ]
