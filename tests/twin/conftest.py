"""Tests of twin and kernel share their workloads and comparisons: `test_engine_twin` may be imported by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
