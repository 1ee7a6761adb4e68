"""Renames models and fields by the vocabulary of the field; every row is kept."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

# table, column, old value, new value
VALUES = (("session", "stop_cause", "account_limit", "rate_limit"),)


def rename_values(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for model, column, old, new in VALUES:
        rows = apps.get_model("sessions_app", model).objects.filter(**{column: old})
        rows.update(**{column: new})


def restore_values(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for model, column, old, new in VALUES:
        rows = apps.get_model("sessions_app", model).objects.filter(**{column: new})
        rows.update(**{column: old})


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0022_task_number")]

    operations = [
        migrations.RenameModel("Happening", "Notification"),
        migrations.RenameModel("Target", "Channel"),
        migrations.RenameModel("AccountClock", "RateLimit"),
        migrations.RenameModel("WallsProof", "SandboxProof"),
        migrations.RenameModel("WorkerBeat", "WorkerHeartbeat"),
        migrations.RemoveIndex("transcriptchunk", "chunk_clear"),
        migrations.RenameField("approval", "doors", "grants"),
        migrations.RenameField("channel", "sealed_address", "encrypted_address"),
        migrations.RenameField("incident", "healthy_rounds", "healthy_cycles"),
        migrations.RenameField("message", "happenings", "notifications"),
        migrations.RenameField("session", "walls", "sandbox"),
        migrations.RenameField("transcriptchunk", "sealed", "encrypted"),
        migrations.RenameField("watch", "doors", "grants"),
        migrations.AddIndex(
            "transcriptchunk",
            models.Index(
                fields=["id"], condition=models.Q(encrypted=False), name="chunk_clear"
            ),
        ),
        migrations.RunPython(rename_values, restore_values),
    ]
