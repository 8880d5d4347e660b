"""`fleetplan candidates`: a scenario's grid, what fits, and why the rest cannot run."""

from fleetplan.cli.stage import stage_command

command = stage_command("candidates")
