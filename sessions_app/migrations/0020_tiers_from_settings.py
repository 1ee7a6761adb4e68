"""Read the choices of tiers from the settings.

Nothing changes in the database: a new tier needs no migration.
"""

from __future__ import annotations

from django.db import migrations, models

import sessions_app.models.watch
import sessions_app.tiers


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0019_ping_due")]

    operations = [
        # A changed default alone would make SQLite rebuild the table.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(
                    model_name="cycle",
                    name="first_tier",
                    field=models.PositiveSmallIntegerField(
                        choices=sessions_app.tiers.tier_choices, default=1
                    ),
                ),
                migrations.AlterField(
                    model_name="cycle",
                    name="max_tier",
                    field=models.PositiveSmallIntegerField(
                        choices=sessions_app.tiers.tier_choices,
                        default=sessions_app.tiers.highest_tier,
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="tier",
                    field=models.PositiveSmallIntegerField(
                        choices=sessions_app.tiers.tier_choices
                    ),
                ),
                migrations.AlterField(
                    model_name="watch",
                    name="max_tier",
                    field=models.PositiveSmallIntegerField(
                        choices=sessions_app.tiers.tier_choices,
                        default=sessions_app.models.watch.default_max_tier,
                        help_text="The supervisor never escalates above this tier.",
                        validators=[sessions_app.tiers.validate_tier],
                    ),
                ),
            ]
        )
    ]
