"""Indexes for lists and budgets that must not grow slow with the record."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0017_stopped_by'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='change',
            name='change_cooldown',
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(fields=['asked_at'], name='approval_asked'),
        ),
        migrations.AddIndex(
            model_name='change',
            index=models.Index(fields=['watch', 'at'], name='change_cooldown'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(fields=['first_seen_at'], name='incident_first_seen'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(fields=['resolved_as', 'drill', 'resolved_at'], name='incident_resolved'),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(condition=models.Q(('cost_usd__isnull', True)), fields=['started_at'], name='session_unpriced'),
        ),
    ]
