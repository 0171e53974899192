"""Settings of the state machines that test the spool against models."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.harness.rounds import part_of


def machine_settings(few: int, many: int, steps: int) -> settings:
    """Run few examples, or many in a thorough run, of this many steps each."""
    return settings(
        max_examples=part_of(few, many),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
