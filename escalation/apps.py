from django.apps import AppConfig


class EscalationConfig(AppConfig):
    name = "escalation"

    def ready(self) -> None:
        from escalation import checks  # noqa: F401  (registers the system checks)
        from escalation.host import schedules  # noqa: F401  (keeps schedules in step with watches)
        from escalation.rehearsal.drills.drill import drill_surroundings
        from escalation.run.surroundings import provide_for_drills
        from escalation.web.doors_table import problems_in
        from sessions_app.models.door_words import read_door_words_by

        provide_for_drills(drill_surroundings)
        read_door_words_by(problems_in)
