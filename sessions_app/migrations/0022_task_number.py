"""Store the number of a session's task, so that nobody has to read the tasks to find it."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0021_costs_by_utc_day")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="task_number",
            field=models.BigIntegerField(
                editable=False,
                help_text="The number of its last task in the queue, whether or not that is still "
                "there.",
                null=True,
            ),
        ),
    ]
