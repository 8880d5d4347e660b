"""`fleetplan sizing`: the decision with its evidence."""

from fleetplan.cli.stage import stage_command

command = stage_command("sizing")
