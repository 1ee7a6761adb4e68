"""Renames `Message.target` to `channel`."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0023_vocabulary")]

    operations = [
        migrations.RenameField("message", "target", "channel"),
        migrations.AlterField(
            "channel",
            "watches",
            models.ManyToManyField(
                blank=True,
                help_text="None chosen: all of them.",
                related_name="channels",
                to="sessions_app.watch",
            ),
        ),
    ]
