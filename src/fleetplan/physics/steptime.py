"""Step times by any cost model (affine, linear, roofline, table), all in the one form of `physics.form`."""

from fleetplan.physics.form import Floats, StepTime, affine, linear, table
from fleetplan.physics.roofline import roofline
from fleetplan.physics.steptime_file import from_document, from_json, to_document, to_json

__all__ = [
    "Floats",
    "StepTime",
    "affine",
    "from_document",
    "from_json",
    "linear",
    "roofline",
    "table",
    "to_document",
    "to_json",
]
