"""Incidents, approvals, changes, word to people, and what a watch is trusted with."""

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import sessions_app.models.watch
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0007_access'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='cycle',
            name='approval',
            field=models.CharField(blank=True, max_length=20, verbose_name='tiers that need approval'),
        ),
        migrations.AddField(
            model_name='session',
            name='spent_so_far_usd',
            field=models.DecimalField(blank=True, decimal_places=10, help_text="While it runs: the gateway's count at the last known price, at each heartbeat.", max_digits=20, null=True),
        ),
        migrations.AddField(
            model_name='watch',
            name='approval',
            field=models.CharField(blank=True, default=sessions_app.models.watch.default_approval, help_text='Like 3 or 2,3: these start only after a person has approved it.', max_length=20, verbose_name='tiers that need approval'),
        ),
        migrations.AddField(
            model_name='watch',
            name='budget_day_usd',
            field=models.DecimalField(blank=True, decimal_places=10, help_text='Its runs of one day together; CLAUDEOPS_BUDGET_WATCH_DAY where it is empty.', max_digits=20, null=True, verbose_name='dollars a day'),
        ),
        migrations.AddField(
            model_name='watch',
            name='redeployment_hours',
            field=models.PositiveSmallIntegerField(default=24, validators=[django.core.validators.MinValueValidator(1)]),
        ),
        migrations.AddField(
            model_name='watch',
            name='redeployments_allowed',
            field=models.PositiveSmallIntegerField(default=1, help_text='Redeployments of one service within the hours beside it.'),
        ),
        migrations.AddField(
            model_name='watch',
            name='restart_hours',
            field=models.PositiveSmallIntegerField(default=4, validators=[django.core.validators.MinValueValidator(1)]),
        ),
        migrations.AddField(
            model_name='watch',
            name='restarts_allowed',
            field=models.PositiveSmallIntegerField(default=2, help_text='Restarts of one service within the hours beside it.'),
        ),
        migrations.AlterField(
            model_name='cycle',
            name='trigger',
            field=models.CharField(choices=[('schedule', 'schedule'), ('manual', 'manual'), ('verification', 'verification of a fix')], max_length=20),
        ),
        migrations.CreateModel(
            name='Approval',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('tier', 'a tier'), ('command', 'a command')], max_length=20)),
                ('why', models.CharField(help_text='Why a person is asked.', max_length=300)),
                ('command', models.TextField(blank=True)),
                ('actions', models.JSONField(blank=True, default=list, help_text='What it was understood to do.')),
                ('doors', models.JSONField(blank=True, default=list, help_text='What it would be let through.')),
                ('plan', models.TextField(blank=True, help_text='What the run says it is about to do, and why.')),
                ('state', models.CharField(choices=[('waiting', 'waiting'), ('approved', 'approved'), ('rejected', 'rejected'), ('expired', 'expired'), ('withdrawn', 'withdrawn')], default='waiting', max_length=20)),
                ('asked_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField()),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('note', models.TextField(blank=True, help_text='For the record, and for the model.')),
                ('used_at', models.DateTimeField(blank=True, help_text='When what was approved began: it does so once.', null=True)),
                ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
                ('session', models.ForeignKey(help_text='The tier that waits, or the run whose command waits.', on_delete=django.db.models.deletion.CASCADE, related_name='approvals', to='sessions_app.session')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Change',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('call', models.CharField(help_text="The gate's name for this one call.", max_length=20)),
                ('kind', models.CharField(choices=[('restart', 'restart'), ('redeploy', 'redeployment'), ('other', 'other change')], max_length=20)),
                ('service', models.CharField(blank=True, help_text='What it was done to, in one spelling.', max_length=200)),
                ('action', models.CharField(help_text='As the gate understood it.', max_length=300)),
                ('command', models.TextField(help_text='As it was written, masked.')),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
                ('exit_code', models.IntegerField(blank=True, null=True)),
                ('is_cleared', models.BooleanField(default=False, help_text='Two healthy rounds came after it: it counts for no cooldown.')),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='changes', to='sessions_app.session')),
                ('watch', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='changes', to='sessions_app.watch')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Incident',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('watch_name', models.CharField(blank=True, help_text='As the watch was called when it was first seen.', max_length=100)),
                ('drill', models.CharField(blank=True, help_text='The scenario, when this was a drill.', max_length=100)),
                ('kind', models.CharField(choices=[('problem', 'needs a person'), ('could_not_run', 'could not run')], max_length=20)),
                ('scope', models.CharField(help_text='Whose it is: `watch:3`, `drill:three-tiers` or `installation`.', max_length=120)),
                ('cause', models.CharField(help_text='The service in one spelling, or why nothing could run, by name.', max_length=200)),
                ('title', models.CharField(help_text='What is wrong, in one line.', max_length=200)),
                ('detail', models.TextField(blank=True, help_text='As the last round that saw it put it.')),
                ('severity', models.PositiveSmallIntegerField(choices=[(1, 'notice'), (2, 'warning'), (3, 'critical')], default=2)),
                ('state', models.CharField(choices=[('open', 'open'), ('acknowledged', 'acknowledged'), ('working', 'being worked on'), ('verifying', 'fixed, being verified'), ('resolved', 'resolved')], default='open', max_length=20)),
                ('first_seen_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('last_seen_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('times_seen', models.PositiveIntegerField(default=1)),
                ('healthy_rounds', models.PositiveSmallIntegerField(default=0, help_text='Rounds in a row that found it healthy since it was last seen.')),
                ('times_reopened', models.PositiveIntegerField(default=0)),
                ('acknowledged_at', models.DateTimeField(blank=True, null=True)),
                ('snoozed_until', models.DateTimeField(blank=True, null=True)),
                ('verify_at', models.DateTimeField(blank=True, help_text='When a fresh round looks whether the fix holds.', null=True)),
                ('resolved_at', models.DateTimeField(blank=True, null=True)),
                ('resolved_as', models.CharField(blank=True, choices=[('agent', 'fixed by the agent and verified'), ('person', 'resolved by a person'), ('itself', 'recovered by itself')], max_length=20)),
                ('cycles', models.ManyToManyField(blank=True, help_text='All that had to do with it.', related_name='incidents', to='sessions_app.cycle')),
                ('last_cycle', models.ForeignKey(blank=True, help_text='The last that saw it, worked on it or looked whether its fix holds.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='sessions_app.cycle')),
                ('owner', models.ForeignKey(blank=True, help_text='Who has it.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('resolved_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('watch', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='incidents', to='sessions_app.watch')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Happening',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('incident_opened', 'an incident opened'), ('incident_changed_hands', 'an incident changed hands'), ('incident_resolved', 'an incident was resolved'), ('fix_verified', 'a fix was verified'), ('fix_did_not_hold', 'a fix did not hold'), ('approval_wanted', 'an approval is wanted'), ('budget', 'a budget is nearly or wholly spent'), ('cooldown', 'a cooldown stopped a remedy'), ('walls_worse', 'the walls got worse'), ('worker_silent', 'no worker is seen')], max_length=30)),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
                ('severity', models.PositiveSmallIntegerField(choices=[(1, 'notice'), (2, 'warning'), (3, 'critical')])),
                ('title', models.CharField(max_length=200)),
                ('text', models.TextField(blank=True)),
                ('path', models.CharField(blank=True, help_text='The page that shows it.', max_length=300)),
                ('passed_on_at', models.DateTimeField(blank=True, help_text='When it was decided who is told.', null=True)),
                ('approval', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to='sessions_app.approval')),
                ('watch', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to='sessions_app.watch')),
                ('incident', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to='sessions_app.incident')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='IncidentEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('opened', 'opened'), ('seen', 'seen again'), ('worse', 'got worse'), ('recovered', 'seems recovered'), ('worked_on', 'worked on'), ('fixed', 'fixed, to be verified'), ('verified', 'fixed and verified'), ('did_not_hold', 'the fix did not hold'), ('acknowledged', 'acknowledged'), ('snoozed', 'snoozed'), ('handed_over', 'changed hands'), ('noted', 'note'), ('reopened', 'opened again'), ('resolved', 'resolved')], max_length=20)),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
                ('text', models.TextField(blank=True)),
                ('by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
                ('cycle', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='sessions_app.cycle')),
                ('incident', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='sessions_app.incident')),
                ('session', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='sessions_app.session')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='Target',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100, unique=True)),
                ('sealed_address', models.BinaryField(help_text="Apprise's address, encrypted: it is a secret.")),
                ('enabled', models.BooleanField(default=True)),
                ('least_severity', models.PositiveSmallIntegerField(choices=[(1, 'notice'), (2, 'warning'), (3, 'critical')], default=2)),
                ('quiet_from', models.TimeField(blank=True, help_text='Quiet hours, local time …', null=True)),
                ('quiet_until', models.TimeField(blank=True, help_text='… in which only what is critical is sent.', null=True)),
                ('digest_at', models.TimeField(blank=True, help_text='When the daily digest is sent here, local time.', null=True)),
                ('digest_sent_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('last_sent_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('failures_in_a_row', models.PositiveIntegerField(default=0, editable=False)),
                ('last_error', models.CharField(blank=True, editable=False, max_length=500)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('owner', models.ForeignKey(blank=True, help_text='Who reads it alone. Only then a link in it may approve something by itself.', null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
                ('watches', models.ManyToManyField(blank=True, help_text='None chosen: all of them.', related_name='targets', to='sessions_app.watch')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Message',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('title', models.CharField(max_length=200)),
                ('body', models.TextField()),
                ('severity', models.PositiveSmallIntegerField(choices=[(1, 'notice'), (2, 'warning'), (3, 'critical')])),
                ('state', models.CharField(choices=[('waiting', 'waiting'), ('sent', 'sent'), ('failed', 'given up')], default='waiting', max_length=20)),
                ('due_at', models.DateTimeField(default=django.utils.timezone.now, help_text='Not sent before.')),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('error', models.CharField(blank=True, max_length=500)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('happenings', models.ManyToManyField(help_text='What it tells: several in a storm.', related_name='messages', to='sessions_app.happening')),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='messages', to='sessions_app.target')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(fields=['state', 'expires_at'], name='approval_waiting'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.UniqueConstraint(condition=models.Q(('kind', 'tier'), ('state', 'waiting')), fields=('session',), name='one_waiting_approval_per_tier'),
        ),
        migrations.AddIndex(
            model_name='change',
            index=models.Index(fields=['watch', 'service', 'at'], name='change_cooldown'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(fields=['state', '-severity', '-id'], name='incident_inbox'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(fields=['watch', '-id'], name='incident_watch'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'resolved'), _negated=True), fields=('scope', 'kind', 'cause'), name='one_unresolved_incident_per_cause'),
        ),
        migrations.AddIndex(
            model_name='happening',
            index=models.Index(fields=['passed_on_at', 'id'], name='happening_waiting'),
        ),
        migrations.AddIndex(
            model_name='message',
            index=models.Index(fields=['state', 'due_at'], name='message_due'),
        ),
    ]
