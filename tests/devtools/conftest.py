from tests.escalation.conftest import fake_cli, own_environment

__all__ = ["fake_cli", "own_environment"]
