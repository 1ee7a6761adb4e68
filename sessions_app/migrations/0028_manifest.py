"""Adds the accepted text of CLAUDE-OPS.md. For a watch that exists, the text that is found at the
next read is accepted: nobody was asked before."""

import django.db.models.deletion
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def accept_at_next_read(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    manifest, watch = (apps.get_model("sessions_app", name) for name in ("Manifest", "Watch"))
    manifest.objects.bulk_create([manifest(watch=one) for one in watch.objects.only("pk")])


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0027_sandbox_names'),
    ]

    operations = [
        migrations.AddField(
            model_name='watch',
            name='manifest_waits',
            field=models.BooleanField(default=False, editable=False, help_text='CLAUDE-OPS.md differs from the accepted text, as a worker last saw it.'),
        ),
        migrations.CreateModel(
            name='Manifest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('text', models.TextField(blank=True, help_text='Empty if there was no file.')),
                ('accepted_by', models.CharField(blank=True, max_length=200)),
                ('accepted_at', models.DateTimeField(blank=True, help_text='Empty after an upgrade: the text that is found next is accepted.', null=True)),
                ('watch', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='manifest', to='sessions_app.watch')),
            ],
        ),
        migrations.RunPython(accept_at_next_read, migrations.RunPython.noop),
    ]
