"""The ping of a cycle is noted where the cycle ends, and sent afterwards."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0018_list_indexes'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='cycle',
            name='ping_due_at',
            field=models.DateTimeField(blank=True, editable=False, help_text='When CLAUDEOPS_PING_URL is to be called; empty where it was, or need not be.', null=True),
        ),
        migrations.AddIndex(
            model_name='cycle',
            index=models.Index(condition=models.Q(('ping_due_at__isnull', False)), fields=['ping_due_at'], name='cycle_ping_due'),
        ),
    ]
