"""How each service is, from the reports; and what the page of events reads along."""

import re
import unicodedata
from datetime import UTC, datetime

import django.db.models.deletion
from django.db import migrations, models

from sessions_app.models.incident import Mark, since, with_mark

PLACES = ("down", "degraded", "unknown", "healthy")
SIDE_RUNS = ("follow_up", "fork", "plan")


def spelling(name):
    """As it was when this was written. A name that cannot be shown as it is waits for its next round."""
    text = unicodedata.normalize("NFKC", name).casefold()
    text = re.sub(r"[\s_]+", "-", text.strip(" \t\n\"'`#")).removesuffix(".service").strip("-#")
    return text if text.isprintable() and 0 < len(text) <= 200 else ""


def read_reports(apps, schema_editor):
    session, state = (apps.get_model("sessions_app", name) for name in ("Session", "ServiceState"))
    ended = session.objects.filter(
        cycle__state="finished", cycle__watch__isnull=False, report__isnull=False
    ).exclude(purpose__in=SIDE_RUNS)
    rows = ended.order_by("cycle_id", "id").values_list(
        "cycle__watch_id", "cycle_id", "cycle__created_at", "report__services"
    )
    marks, said = {}, {}
    for watch, cycle, began, services in rows.iterator():
        worst = {}
        for service in services if isinstance(services, list) else []:
            name, status = spelling(str(service.get("name", ""))), service.get("status")
            if name and status in PLACES:
                worst[name] = min(worst.get(name, (9,)), (PLACES.index(status), status, str(service)))
                said[watch, name] = (str(service["name"]), str(service.get("detail", "")), cycle)
        for name, (_place, status, _service) in worst.items():
            mark = Mark(cycle, status, int(began.timestamp()))
            before = marks.get((watch, name))
            kept = with_mark(before[0] if before else (), mark)
            marks[watch, name] = kept, since(kept, before[1] if before else None)
    state.objects.bulk_create(
        [
            state(
                watch_id=watch,
                service=service,
                name=said[watch, service][0][:200],
                status=kept[-1].status,
                place=PLACES.index(kept[-1].status),
                detail=said[watch, service][1][:300],
                since=datetime.fromtimestamp(began, UTC),
                seen_at=datetime.fromtimestamp(kept[-1].at, UTC),
                cycle_id=said[watch, service][2],
                marks=[list(mark) for mark in kept],
            )
            for (watch, service), (kept, began) in marks.items()
        ],
        batch_size=500,
    )


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0013_rollups'),
    ]

    operations = [
        migrations.CreateModel(
            name='ServiceState',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('service', models.CharField(help_text='In one spelling.', max_length=200)),
                ('name', models.CharField(help_text='As the last report wrote it.', max_length=200)),
                ('status', models.CharField(choices=[('down', 'down'), ('degraded', 'degraded'), ('unknown', 'unknown'), ('healthy', 'healthy')], max_length=20)),
                ('place', models.PositiveSmallIntegerField(help_text='In a list, the worst first.')),
                ('detail', models.CharField(blank=True, max_length=300)),
                ('since', models.DateTimeField(help_text='When the round began that first said so.')),
                ('seen_at', models.DateTimeField(help_text='When the last round began that named it.')),
                ('marks', models.JSONField(default=list, help_text='Of the last 40 rounds that named it: cycle, status, seconds.')),
            ],
        ),
        migrations.AddIndex(
            model_name='happening',
            index=models.Index(condition=models.Q(('incident', None), ('approval__isnull', False), _connector='OR'), fields=['-id'], name='happening_alone'),
        ),
        migrations.AddIndex(
            model_name='incidentevent',
            index=models.Index(condition=models.Q(('kind', 'seen'), _negated=True), fields=['-id'], name='incidentevent_told'),
        ),
        migrations.AddField(
            model_name='servicestate',
            name='cycle',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='sessions_app.cycle'),
        ),
        migrations.AddField(
            model_name='servicestate',
            name='watch',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='services', to='sessions_app.watch'),
        ),
        migrations.AddIndex(
            model_name='servicestate',
            index=models.Index(fields=['place', 'service', 'id'], name='service_worst_first'),
        ),
        migrations.AddConstraint(
            model_name='servicestate',
            constraint=models.UniqueConstraint(fields=('watch', 'service'), name='one_state_per_service'),
        ),
        migrations.RunPython(read_reports, migrations.RunPython.noop),
    ]
