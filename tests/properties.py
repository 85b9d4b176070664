"""How tests draw their cases that take an engine, too."""

from hypothesis import HealthCheck, settings


def drawn(examples, **more):
    """Draw so many examples, however long each takes; fixtures serve all of them."""
    checks = [HealthCheck.function_scoped_fixture]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks, **more)
