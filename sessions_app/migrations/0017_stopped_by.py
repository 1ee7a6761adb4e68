from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0016_host_labels"),
    ]

    operations = [
        migrations.AddField(
            model_name="cycle",
            name="stopped_by",
            field=models.CharField(
                blank=True, help_text="Who stopped or cancelled it on purpose.", max_length=200
            ),
        ),
    ]
