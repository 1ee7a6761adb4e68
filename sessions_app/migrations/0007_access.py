"""Roles as groups, with every account in the one that fits, and the count of failed logins."""

import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

ROLES = ("viewer", "operator", "approver", "admin")
FORMER_RULE = ("change_session", "change_watch")


def give_roles(apps, schema_editor):
    """Who held the permissions of the former rule could do all that an approver may; everybody
    else could look. Superusers are admins without a group."""
    group_model = apps.get_model("auth", "Group")
    user_model = apps.get_model("auth", "User")
    groups = {name: group_model.objects.get_or_create(name=name)[0] for name in ROLES}
    for user in user_model.objects.filter(is_superuser=False).exclude(groups__name__in=ROLES):
        role = "approver" if all(_holds(apps, user, name) for name in FORMER_RULE) else "viewer"
        user.groups.add(groups[role])


def _holds(apps, user, codename):
    wanted = apps.get_model("auth", "Permission").objects.filter(
        codename=codename, content_type__app_label="sessions_app"
    )
    directly = wanted.filter(user=user)
    through_a_group = wanted.filter(group__in=user.groups.all())
    return directly.exists() or through_a_group.exists()


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0006_account_limit"),
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="LoginFailure",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("username", models.CharField(max_length=150)),
                ("address", models.CharField(max_length=45)),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [models.Index(fields=["at"], name="login_failure_at")],
            },
        ),
        migrations.RunPython(give_roles, migrations.RunPython.noop),
    ]
