"""Renames the last names of the old vocabulary: a field, two indexes and two stored values."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

# model, column, old value, new value, further filter
VALUES = (
    ("Incident", "cause", "walls", "sandbox", {"kind": "could_not_run"}),
    ("Notification", "kind", "walls_worse", "sandbox_worse", {}),
)


def rename_values(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for model, column, old, new, only in VALUES:
        rows = apps.get_model("sessions_app", model).objects.filter(**only, **{column: old})
        rows.update(**{column: new})


def restore_values(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for model, column, old, new, only in VALUES:
        rows = apps.get_model("sessions_app", model).objects.filter(**only, **{column: new})
        rows.update(**{column: old})


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0026_labels")]

    operations = [
        migrations.RenameField("sandboxproof", "rooms", "sandbox"),
        migrations.RenameIndex("notification", "notification_waiting", "happening_waiting"),
        migrations.RenameIndex("notification", "notification_alone", "happening_alone"),
        migrations.AlterField(
            model_name="notification",
            name="kind",
            field=models.CharField(
                choices=[
                    ("incident_opened", "incident opened"),
                    ("incident_changed_hands", "incident assigned"),
                    ("incident_resolved", "incident resolved"),
                    ("fix_verified", "fix verified"),
                    ("fix_did_not_hold", "fix failed"),
                    ("approval_wanted", "approval needed"),
                    ("budget", "budget almost or completely spent"),
                    ("cooldown", "remedy stopped by a cooldown"),
                    ("sandbox_worse", "sandbox proof got worse"),
                    ("worker_silent", "no worker heartbeat"),
                ],
                max_length=30,
            ),
        ),
        migrations.RunPython(rename_values, restore_values),
    ]
