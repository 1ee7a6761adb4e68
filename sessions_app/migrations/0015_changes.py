"""Edits stand among the changes, with their diffs, and an index for each filter of the list."""
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0014_services'),
    ]

    operations = [
        migrations.AddField(
            model_name='change',
            name='diff',
            field=models.TextField(blank=True, help_text='Of an edit, masked; a long one is cut.'),
        ),
        migrations.AddField(
            model_name='change',
            name='path',
            field=models.CharField(blank=True, help_text='The file that was edited.', max_length=1000),
        ),
        migrations.AlterField(
            model_name='change',
            name='call',
            field=models.CharField(help_text="The gate's name for this one call; of an edit, the CLI's.", max_length=100),
        ),
        migrations.AlterField(
            model_name='change',
            name='kind',
            field=models.CharField(choices=[('restart', 'restart'), ('redeploy', 'redeployment'), ('other', 'other change'), ('edit', 'edit of a file')], max_length=20),
        ),
        migrations.AddIndex(
            model_name='change',
            index=models.Index(fields=['watch', '-id'], name='change_watch'),
        ),
        migrations.AddIndex(
            model_name='change',
            index=models.Index(fields=['service', '-id'], name='change_service'),
        ),
        migrations.AddIndex(
            model_name='change',
            index=models.Index(fields=['kind', '-id'], name='change_kind'),
        ),
        migrations.AddIndex(
            model_name='change',
            index=models.Index(fields=['at'], name='change_at'),
        ),
    ]
