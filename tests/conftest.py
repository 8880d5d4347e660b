"""What every test may use: the handed files, where they are, and Hypothesis profiles."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

PROJECT = Path(__file__).resolve().parents[1]

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's root."""
    return PROJECT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of handed files: $FLEETPLAN_SHARED, else ../shared; where neither is, the test is skipped."""
    given = os.environ.get("FLEETPLAN_SHARED")
    folder = Path(given) if given else PROJECT.parent / "shared"
    if not folder.is_dir():
        if os.environ.get("FLEETPLAN_REQUIRE_SHARED"):
            pytest.fail(f"the handed files are required and {folder} is not a folder")
        pytest.skip("no handed files: neither $FLEETPLAN_SHARED nor ../shared is a folder")
    return folder
