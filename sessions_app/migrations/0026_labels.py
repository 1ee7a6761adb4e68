"""Changes labels, help texts and choices of fields; no column."""

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import sessions_app.models.watch
from django.conf import settings
from django.db import migrations, models
from django.db.migrations.state import ProjectState


class StateOnly(migrations.SeparateDatabaseAndState):
    """Changes many fields without rendering all models again after each one."""

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        state.__dict__.pop("apps", None)
        super().state_forwards(app_label, state)


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0025_command_events'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    labels = [
        migrations.AlterModelOptions(
            name='ratelimit',
            options={'verbose_name_plural': 'rate limit'},
        ),
        migrations.AlterField(
            model_name='approval',
            name='actions',
            field=models.JSONField(blank=True, default=list, help_text='Actions that the command policy recognised.'),
        ),
        migrations.AlterField(
            model_name='approval',
            name='fingerprint',
            field=models.CharField(blank=True, help_text='Hash of the command before redaction.', max_length=64),
        ),
        migrations.AlterField(
            model_name='approval',
            name='grants',
            field=models.JSONField(blank=True, default=list, help_text='Grants that the command would get.'),
        ),
        migrations.AlterField(
            model_name='approval',
            name='kind',
            field=models.CharField(choices=[('tier', 'tier'), ('command', 'command')], max_length=20),
        ),
        migrations.AlterField(
            model_name='approval',
            name='note',
            field=models.TextField(blank=True, help_text='Stored, and passed to the model.'),
        ),
        migrations.AlterField(
            model_name='approval',
            name='plan',
            field=models.TextField(blank=True, help_text='Plan of the agent, with its reasons.'),
        ),
        migrations.AlterField(
            model_name='approval',
            name='plan_run',
            field=models.ForeignKey(blank=True, help_text='Plan session that made the plan.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='sessions_app.session'),
        ),
        migrations.AlterField(
            model_name='approval',
            name='session',
            field=models.ForeignKey(help_text='Session that waits, or whose command waits.', on_delete=django.db.models.deletion.CASCADE, related_name='approvals', to='sessions_app.session'),
        ),
        migrations.AlterField(
            model_name='approval',
            name='used_at',
            field=models.DateTimeField(blank=True, help_text='When the approval was used. It can be used once.', null=True),
        ),
        migrations.AlterField(
            model_name='approval',
            name='why',
            field=models.CharField(help_text='Why approval is needed.', max_length=300),
        ),
        migrations.AlterField(
            model_name='budgetnotice',
            name='budget',
            field=models.CharField(help_text='Like `day`, `month` or `watch:3`.', max_length=40),
        ),
        migrations.AlterField(
            model_name='budgetnotice',
            name='period',
            field=models.DateField(help_text='First day of the period.'),
        ),
        migrations.AlterField(
            model_name='change',
            name='action',
            field=models.CharField(help_text='Action that the command policy recognised.', max_length=300),
        ),
        migrations.AlterField(
            model_name='change',
            name='call',
            field=models.CharField(help_text='Id of the call, from the command policy or, for an edit, from the CLI.', max_length=100),
        ),
        migrations.AlterField(
            model_name='change',
            name='command',
            field=models.TextField(help_text='Redacted command.'),
        ),
        migrations.AlterField(
            model_name='change',
            name='diff',
            field=models.TextField(blank=True, help_text='Redacted diff of an edit; a long one is cut.'),
        ),
        migrations.AlterField(
            model_name='change',
            name='is_cleared',
            field=models.BooleanField(default=False, help_text='True after two healthy cycles; it does not count for cooldowns any more.'),
        ),
        migrations.AlterField(
            model_name='change',
            name='number',
            field=models.PositiveSmallIntegerField(default=0, help_text='Position in the command.'),
        ),
        migrations.AlterField(
            model_name='change',
            name='path',
            field=models.CharField(blank=True, help_text='Edited file.', max_length=1000),
        ),
        migrations.AlterField(
            model_name='change',
            name='service',
            field=models.CharField(blank=True, help_text='Normalised name of the changed service.', max_length=200),
        ),
        migrations.AlterField(
            model_name='channel',
            name='digest_at',
            field=models.TimeField(blank=True, help_text='Time of the daily digest, local time.', null=True),
        ),
        migrations.AlterField(
            model_name='channel',
            name='digest_when_quiet',
            field=models.BooleanField(default=False, help_text='Send the digest even if it is empty.'),
        ),
        migrations.AlterField(
            model_name='channel',
            name='encrypted_address',
            field=models.BinaryField(help_text='Address of Apprise, encrypted because it contains a secret.'),
        ),
        migrations.AlterField(
            model_name='channel',
            name='owner',
            field=models.ForeignKey(blank=True, help_text='Only reader of the channel. Links that approve are sent to such channels only.', null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL),
        ),
        migrations.AlterField(
            model_name='channel',
            name='quiet_from',
            field=models.TimeField(blank=True, help_text='Start of the quiet hours, local time.', null=True),
        ),
        migrations.AlterField(
            model_name='channel',
            name='quiet_until',
            field=models.TimeField(blank=True, help_text='End of the quiet hours. Only critical notifications are sent in them.', null=True),
        ),
        migrations.AlterField(
            model_name='channel',
            name='service',
            field=models.CharField(blank=True, default='', help_text='Service and host of the address, which may be displayed.', max_length=200),
        ),
        migrations.AlterField(
            model_name='channel',
            name='watches',
            field=models.ManyToManyField(blank=True, help_text='Empty: all watches.', related_name='channels', to='sessions_app.watch'),
        ),
        migrations.AlterField(
            model_name='conversation',
            name='reason',
            field=models.TextField(blank=True, help_text='Why the conversation must not be resumed.'),
        ),
        migrations.AlterField(
            model_name='cycle',
            name='budget_usd',
            field=models.DecimalField(blank=True, decimal_places=10, help_text='For the whole chain. CLAUDEOPS_BUDGET_CHAIN applies too, except to drills.', max_digits=20, null=True, verbose_name='budget in US dollars'),
        ),
        migrations.AlterField(
            model_name='cycle',
            name='drill',
            field=models.CharField(blank=True, help_text='Scenario of a drill; empty otherwise.', max_length=100),
        ),
        migrations.AlterField(
            model_name='cycle',
            name='ephemeral',
            field=models.BooleanField(default=False, help_text='Conversations are neither saved nor archived, and cannot be resumed.', verbose_name='ephemeral'),
        ),
        migrations.AlterField(
            model_name='cycle',
            name='force_fresh',
            field=models.BooleanField(default=False, help_text='Higher tiers start a new conversation by handoff instead of resume.'),
        ),
        migrations.AlterField(
            model_name='cycle',
            name='ping_due_at',
            field=models.DateTimeField(blank=True, editable=False, help_text='When to call CLAUDEOPS_PING_URL; empty if done or not needed.', null=True),
        ),
        migrations.AlterField(
            model_name='cycle',
            name='prompt',
            field=models.TextField(blank=True, help_text='Additional request of the person who started the cycle.'),
        ),
        migrations.AlterField(
            model_name='cycle',
            name='stopped_by',
            field=models.CharField(blank=True, help_text='Person who stopped or cancelled the cycle.', max_length=200),
        ),
        migrations.AlterField(
            model_name='cycle',
            name='watch_name',
            field=models.CharField(blank=True, help_text='Name of the watch when the cycle started.', max_length=100),
        ),
        migrations.AlterField(
            model_name='dailyverdict',
            name='day',
            field=models.DateField(help_text='Date in the time zone of the installation.'),
        ),
        migrations.AlterField(
            model_name='incident',
            name='cause',
            field=models.CharField(help_text='Normalised name of the service, or code of the reason why no session ran.', max_length=200),
        ),
        migrations.AlterField(
            model_name='incident',
            name='cycles',
            field=models.ManyToManyField(blank=True, help_text='All cycles that found, fixed or verified it.', related_name='incidents', to='sessions_app.cycle'),
        ),
        migrations.AlterField(
            model_name='incident',
            name='detail',
            field=models.TextField(blank=True, help_text='Detail from the last cycle that found it.'),
        ),
        migrations.AlterField(
            model_name='incident',
            name='drill',
            field=models.CharField(blank=True, help_text='Scenario of a drill; empty otherwise.', max_length=100),
        ),
        migrations.AlterField(
            model_name='incident',
            name='healthy_cycles',
            field=models.PositiveSmallIntegerField(default=0, help_text='Consecutive cycles that found the service healthy.'),
        ),
        migrations.AlterField(
            model_name='incident',
            name='last_cycle',
            field=models.ForeignKey(blank=True, help_text='Last cycle that found, fixed or verified it.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='sessions_app.cycle'),
        ),
        migrations.AlterField(
            model_name='incident',
            name='owner',
            field=models.ForeignKey(blank=True, help_text='Person who takes care of it.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AlterField(
            model_name='incident',
            name='remedy',
            field=models.CharField(blank=True, help_text='Last fix, as it was reported.', max_length=300),
        ),
        migrations.AlterField(
            model_name='incident',
            name='resolved_as',
            field=models.CharField(blank=True, choices=[('agent', 'fixed by the agent and verified'), ('person', 'resolved by a person'), ('itself', 'recovered without a fix')], max_length=20),
        ),
        migrations.AlterField(
            model_name='incident',
            name='scope',
            field=models.CharField(help_text='Like `watch:3`, `drill:three-tiers` or `installation`.', max_length=120),
        ),
        migrations.AlterField(
            model_name='incident',
            name='title',
            field=models.CharField(help_text='Problem in one line.', max_length=200),
        ),
        migrations.AlterField(
            model_name='incident',
            name='verifications_tried',
            field=models.PositiveSmallIntegerField(default=0, help_text='Verifications without a result.'),
        ),
        migrations.AlterField(
            model_name='incident',
            name='verify_at',
            field=models.DateTimeField(blank=True, help_text='When a new cycle verifies the fix.', null=True),
        ),
        migrations.AlterField(
            model_name='incident',
            name='watch_name',
            field=models.CharField(blank=True, help_text='Name of the watch when the incident was opened.', max_length=100),
        ),
        migrations.AlterField(
            model_name='incidentevent',
            name='kind',
            field=models.CharField(choices=[('opened', 'opened'), ('seen', 'seen again'), ('worse', 'got worse'), ('recovered', 'seems recovered'), ('worked_on', 'worked on'), ('fixed', 'fixed, to be verified'), ('verified', 'fixed and verified'), ('did_not_hold', 'the fix failed'), ('not_verified', 'could not be verified'), ('acknowledged', 'acknowledged'), ('snoozed', 'snoozed'), ('handed_over', 'assigned'), ('noted', 'note'), ('reopened', 'reopened'), ('resolved', 'resolved')], max_length=20),
        ),
        migrations.AlterField(
            model_name='message',
            name='due_at',
            field=models.DateTimeField(default=django.utils.timezone.now, help_text='Not sent before this time.'),
        ),
        migrations.AlterField(
            model_name='message',
            name='is_summary',
            field=models.BooleanField(default=False, help_text='Summary that takes more notifications until it is due.'),
        ),
        migrations.AlterField(
            model_name='message',
            name='notifications',
            field=models.ManyToManyField(help_text='Notifications that it reports.', related_name='messages', to='sessions_app.notification'),
        ),
        migrations.AlterField(
            model_name='message',
            name='state',
            field=models.CharField(choices=[('waiting', 'waiting'), ('sent', 'sent'), ('failed', 'failed')], default='waiting', max_length=20),
        ),
        migrations.AlterField(
            model_name='notification',
            name='kind',
            field=models.CharField(choices=[('incident_opened', 'incident opened'), ('incident_changed_hands', 'incident assigned'), ('incident_resolved', 'incident resolved'), ('fix_verified', 'fix verified'), ('fix_did_not_hold', 'fix failed'), ('approval_wanted', 'approval needed'), ('budget', 'budget almost or completely spent'), ('cooldown', 'remedy stopped by a cooldown'), ('walls_worse', 'sandbox proof got worse'), ('worker_silent', 'no worker heartbeat')], max_length=30),
        ),
        migrations.AlterField(
            model_name='notification',
            name='passed_on_at',
            field=models.DateTimeField(blank=True, help_text='When the channels were chosen.', null=True),
        ),
        migrations.AlterField(
            model_name='notification',
            name='path',
            field=models.CharField(blank=True, help_text='Page that shows it.', max_length=300),
        ),
        migrations.AlterField(
            model_name='periodcost',
            name='estimated',
            field=models.BigIntegerField(default=0, help_text='Sessions whose cost is an estimate from the stream.'),
        ),
        migrations.AlterField(
            model_name='periodcost',
            name='first_day',
            field=models.DateField(help_text='In the time zone of the installation, or in UTC for a day in UTC.'),
        ),
        migrations.AlterField(
            model_name='periodcost',
            name='model',
            field=models.CharField(max_length=100, verbose_name='requested model'),
        ),
        migrations.AlterField(
            model_name='periodcost',
            name='unknown',
            field=models.BigIntegerField(default=0, help_text='Ended sessions whose cost is unknown.'),
        ),
        migrations.AlterField(
            model_name='periodcost',
            name='watch_name',
            field=models.CharField(blank=True, help_text='Name of the watch when the cycle started.', max_length=100),
        ),
        migrations.AlterField(
            model_name='periodcost',
            name='watch_number',
            field=models.BigIntegerField(default=0, help_text='Id of the watch, kept after its removal. 0 without a watch.'),
        ),
        migrations.AlterField(
            model_name='ratelimit',
            name='kind',
            field=models.CharField(blank=True, help_text='Window whose limit is reached.', max_length=50),
        ),
        migrations.AlterField(
            model_name='ratelimit',
            name='times_in_a_row',
            field=models.PositiveIntegerField(default=0, help_text='Consecutive sessions that reached the limit.'),
        ),
        migrations.AlterField(
            model_name='ratelimit',
            name='until',
            field=models.DateTimeField(blank=True, help_text='No session starts before this time.', null=True),
        ),
        migrations.AlterField(
            model_name='ratelimit',
            name='windows',
            field=models.JSONField(blank=True, default=dict, help_text='Last reported used share and reset time of each window, by name.'),
        ),
        migrations.AlterField(
            model_name='ratelimit',
            name='words',
            field=models.CharField(blank=True, help_text='Message of the API.', max_length=300),
        ),
        migrations.AlterField(
            model_name='sandboxproof',
            name='failed',
            field=models.PositiveIntegerField(help_text='Hostile commands with an effect, and harmless ones that did not work.'),
        ),
        migrations.AlterField(
            model_name='sandboxproof',
            name='is_worse',
            field=models.BooleanField(default=False, help_text='More failures than in the proof before; higher tiers wait.'),
        ),
        migrations.AlterField(
            model_name='sandboxproof',
            name='kind',
            field=models.CharField(choices=[('corpus', 'harmless and hostile commands'), ('attacks', 'attacks')], max_length=20),
        ),
        migrations.AlterField(
            model_name='sandboxproof',
            name='rooms',
            field=models.CharField(help_text='Version of the sandbox, or why there is none.', max_length=300),
        ),
        migrations.AlterField(
            model_name='sandboxproof',
            name='rows',
            field=models.JSONField(default=list, help_text='Tier, command, expected effect, decision and effect of each trial.'),
        ),
        migrations.AlterField(
            model_name='servicestate',
            name='marks',
            field=models.JSONField(default=list, help_text='Cycle, status and time of the last 40 cycles that reported it.'),
        ),
        migrations.AlterField(
            model_name='servicestate',
            name='name',
            field=models.CharField(help_text='Name as in the last report.', max_length=200),
        ),
        migrations.AlterField(
            model_name='servicestate',
            name='place',
            field=models.PositiveSmallIntegerField(help_text='Rank of the status; 0 is the worst.'),
        ),
        migrations.AlterField(
            model_name='servicestate',
            name='seen_at',
            field=models.DateTimeField(help_text='Start of the last cycle that reported it.'),
        ),
        migrations.AlterField(
            model_name='servicestate',
            name='service',
            field=models.CharField(help_text='Normalised name.', max_length=200),
        ),
        migrations.AlterField(
            model_name='servicestate',
            name='since',
            field=models.DateTimeField(help_text='Start of the first cycle with this status.'),
        ),
        migrations.AlterField(
            model_name='session',
            name='baseline_cost_usd',
            field=models.DecimalField(blank=True, decimal_places=10, help_text='Total of the conversation before this session.', max_digits=20, null=True),
        ),
        migrations.AlterField(
            model_name='session',
            name='continuation_facts',
            field=models.JSONField(blank=True, default=dict, help_text='Facts that the decision on resume was based on.'),
        ),
        migrations.AlterField(
            model_name='session',
            name='continued_guard',
            field=models.CharField(blank=True, help_text='Name of the guard that refused resume.', max_length=40),
        ),
        migrations.AlterField(
            model_name='session',
            name='cost_basis',
            field=models.CharField(blank=True, choices=[('own_share', 'reported by the CLI for this session'), ('per_run', 'reported by a CLI that counts each session separately'), ('difference', 'reported total minus the total of the parent'), ('estimate', 'estimated from the stream, without a result'), ('unknown', 'unknown, without a result')], max_length=20),
        ),
        migrations.AlterField(
            model_name='session',
            name='escalation_reason',
            field=models.TextField(blank=True, help_text='Why the supervisor escalated after this session, or why it did not.'),
        ),
        migrations.AlterField(
            model_name='session',
            name='findings',
            field=models.TextField(blank=True, help_text='Findings that the agent wrote for the next tier on request.'),
        ),
        migrations.AlterField(
            model_name='session',
            name='force_fresh',
            field=models.BooleanField(default=False, help_text='Start a new conversation by handoff instead of resume.'),
        ),
        migrations.AlterField(
            model_name='session',
            name='handoff',
            field=models.JSONField(blank=True, help_text='Handoff that the session started with.', null=True),
        ),
        migrations.AlterField(
            model_name='session',
            name='max_budget_usd',
            field=models.DecimalField(blank=True, decimal_places=10, help_text='Budget in US dollars, if lower than the budget of the tier.', max_digits=20, null=True),
        ),
        migrations.AlterField(
            model_name='session',
            name='max_turns',
            field=models.PositiveIntegerField(blank=True, help_text='Limit of turns, if lower than the limit of the tier.', null=True),
        ),
        migrations.AlterField(
            model_name='session',
            name='model',
            field=models.CharField(max_length=100, verbose_name='requested model'),
        ),
        migrations.AlterField(
            model_name='session',
            name='purpose',
            field=models.CharField(choices=[('tier', 'tier'), ('report', 'repeated request for the report'), ('continuation', 'continued after its turn limit'), ('findings', 'request for written findings'), ('follow_up', 'follow-up question'), ('fork', 'another approach'), ('retry', 'retry'), ('recovery', 'continued after an interruption'), ('plan', 'plan, without changes')], default='tier', max_length=20),
        ),
        migrations.AlterField(
            model_name='session',
            name='reported_cost_usd',
            field=models.DecimalField(blank=True, decimal_places=10, help_text='Cost that the CLI printed. Newer versions print that of the conversation.', max_digits=20, null=True),
        ),
        migrations.AlterField(
            model_name='session',
            name='request',
            field=models.TextField(blank=True, help_text='The question, instruction or reason that a person gave.'),
        ),
        migrations.AlterField(
            model_name='session',
            name='sandbox',
            field=models.JSONField(blank=True, default=dict, help_text='Sandbox and grants of the session, and the location of the API key.'),
        ),
        migrations.AlterField(
            model_name='session',
            name='session_id',
            field=models.CharField(blank=True, db_index=True, help_text='Conversation id of the CLI. Not unique: a resumed session may keep it.', max_length=100),
        ),
        migrations.AlterField(
            model_name='session',
            name='spent_so_far_usd',
            field=models.DecimalField(blank=True, decimal_places=10, help_text='Cost so far, from the tokens that the API proxy counted.', max_digits=20, null=True),
        ),
        migrations.AlterField(
            model_name='session',
            name='stop_cause',
            field=models.CharField(blank=True, choices=[('person', 'stopped by a person'), ('pause', 'Claude Ops was paused'), ('worker', 'the worker was stopped'), ('foreground', 'the command in the terminal ended'), ('time_limit', 'time limit reached'), ('silence', 'idle for too long'), ('budget', 'budget spent'), ('unguarded', 'a command ran without the command policy'), ('rate_limit', 'rate limit reached')], max_length=20),
        ),
        migrations.AlterField(
            model_name='session',
            name='stop_reason',
            field=models.CharField(blank=True, help_text='Stop reason of the last answer of the model.', max_length=100),
        ),
        migrations.AlterField(
            model_name='session',
            name='stop_requested',
            field=models.CharField(blank=True, help_text='Who or what requested the stop, for people.', max_length=200),
        ),
        migrations.AlterField(
            model_name='session',
            name='task_number',
            field=models.BigIntegerField(editable=False, help_text='Id of the last queue task of the session, even if the task is gone.', null=True),
        ),
        migrations.AlterField(
            model_name='session',
            name='terminal_reason',
            field=models.CharField(blank=True, help_text='Reason of the CLI for ending, if it printed one.', max_length=100),
        ),
        migrations.AlterField(
            model_name='session',
            name='waiting_since',
            field=models.DateTimeField(blank=True, help_text='Start of waiting for a free slot.', null=True),
        ),
        migrations.AlterField(
            model_name='session',
            name='watch',
            field=models.ForeignKey(db_index=False, editable=False, help_text='Copy of the watch of the cycle, for lists by watch.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='sessions', to='sessions_app.watch'),
        ),
        migrations.AlterField(
            model_name='transcriptchunk',
            name='encrypted',
            field=models.BooleanField(default=False, help_text='False for chunks of old versions, until cleaning encrypts them.'),
        ),
        migrations.AlterField(
            model_name='transcriptchunk',
            name='stored_as',
            field=models.CharField(blank=True, help_text='File in CLAUDEOPS_ARCHIVE_DIR; empty if the content is in the row.', max_length=500),
        ),
        migrations.AlterField(
            model_name='watch',
            name='approval',
            field=models.CharField(blank=True, default=sessions_app.models.watch.default_approval, help_text='Like 3 or 2,3. These tiers start after a person has approved them.', max_length=20, verbose_name='tiers that need approval'),
        ),
        migrations.AlterField(
            model_name='watch',
            name='ask',
            field=models.CharField(blank=True, help_text='In addition to those of the tier, like Bash(docker restart:*) Bash(git push:*). They run after a person has approved them.', max_length=1000, verbose_name='commands that need approval'),
        ),
        migrations.AlterField(
            model_name='watch',
            name='budget_day_usd',
            field=models.DecimalField(blank=True, decimal_places=10, help_text='For all sessions of a day. Empty: CLAUDEOPS_BUDGET_WATCH_DAY.', max_digits=20, null=True, verbose_name='daily budget in US dollars'),
        ),
        migrations.AlterField(
            model_name='watch',
            name='dry_run',
            field=models.BooleanField(default=sessions_app.models.watch.default_dry_run, help_text='Higher tiers analyse and report, but change nothing.'),
        ),
        migrations.AlterField(
            model_name='watch',
            name='enabled',
            field=models.BooleanField(default=False, help_text='Run on schedule. A watch can be run manually at any time.'),
        ),
        migrations.AlterField(
            model_name='watch',
            name='grants',
            field=models.CharField(blank=True, help_text='Grants in addition to those of the tier, like write:/srv/app read:/home/me/app -ssh.', max_length=1000),
        ),
        migrations.AlterField(
            model_name='watch',
            name='hosts',
            field=models.CharField(blank=True, help_text='Names or labels (CLAUDEOPS_HOST_LABELS) of the hosts that may run it, like lab nas. Empty: any host.', max_length=80),
        ),
        migrations.AlterField(
            model_name='watch',
            name='instructions',
            field=models.TextField(blank=True, help_text='Instructions for Tier 1, in your own words.'),
        ),
        migrations.AlterField(
            model_name='watch',
            name='interval_minutes',
            field=models.PositiveIntegerField(default=sessions_app.models.watch.default_interval_minutes, help_text='Time between two scheduled cycles. A cron expression takes precedence.', validators=[django.core.validators.MinValueValidator(1)]),
        ),
        migrations.AlterField(
            model_name='watch',
            name='redeployments_allowed',
            field=models.PositiveSmallIntegerField(default=1, help_text='Redeployments of one service within the redeployment hours.'),
        ),
        migrations.AlterField(
            model_name='watch',
            name='restarts_allowed',
            field=models.PositiveSmallIntegerField(default=2, help_text='Restarts of one service within the restart hours.'),
        ),
        migrations.AlterField(
            model_name='workerheartbeat',
            name='labels',
            field=models.CharField(blank=True, help_text='Name and labels of the host; watches choose hosts by them.', max_length=500),
        ),
        migrations.AlterField(
            model_name='workerheartbeat',
            name='silence_told_at',
            field=models.DateTimeField(blank=True, help_text='When people were notified of missing heartbeats.', null=True),
        ),
        migrations.AlterField(
            model_name='workerheartbeat',
            name='workers',
            field=models.PositiveIntegerField(default=1, help_text='Number of concurrent sessions.'),
        ),
    ]
    operations = [StateOnly(state_operations=labels)]
