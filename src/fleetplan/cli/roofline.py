"""`fleetplan roofline`: bounds and decode steps of every candidate that can run."""

from fleetplan.cli.stage import stage_command

command = stage_command("roofline")
