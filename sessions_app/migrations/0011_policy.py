"""Safe from the first minute: new watches are off; changes and words about budgets are kept once."""

import django.utils.timezone
import sessions_app.models.watch
from django.db import migrations, models


def keep_what_watches_did(apps, schema_editor):
    """Until now no tier waited for a person: a watch that is there goes on as it did."""
    apps.get_model("sessions_app", "Watch").objects.update(approval="")


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0010_approvals'),
    ]

    operations = [
        migrations.CreateModel(
            name='BudgetNotice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('budget', models.CharField(help_text='`day`, `month` or `watch:3`.', max_length=40)),
                ('period', models.DateField(help_text='The first day of the period.')),
                ('percent', models.PositiveSmallIntegerField()),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.AddField(
            model_name='cycle',
            name='budget_usd',
            field=models.DecimalField(blank=True, decimal_places=10, help_text='Its runs together; CLAUDEOPS_BUDGET_CHAIN counts as well, except in a drill.', max_digits=20, null=True, verbose_name='dollars of the chain'),
        ),
        migrations.AlterField(
            model_name='watch',
            name='dry_run',
            field=models.BooleanField(default=sessions_app.models.watch.default_dry_run, help_text='Higher tiers may think and report, and change nothing.'),
        ),
        migrations.AlterField(
            model_name='watch',
            name='enabled',
            field=models.BooleanField(default=False, help_text='It runs by itself only while this is on; somebody may run it at any time.'),
        ),
        migrations.AddField(
            model_name='change',
            name='number',
            field=models.PositiveSmallIntegerField(default=0, help_text='Its place in the command.'),
        ),
        migrations.AddConstraint(
            model_name='change',
            constraint=models.UniqueConstraint(fields=('session', 'call', 'number'), name='change_written_once'),
        ),
        migrations.AddConstraint(
            model_name='budgetnotice',
            constraint=models.UniqueConstraint(fields=('budget', 'period', 'percent'), name='budget_told_once'),
        ),
        migrations.RunPython(keep_what_watches_did, migrations.RunPython.noop),
    ]
