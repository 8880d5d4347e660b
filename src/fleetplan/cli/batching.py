"""`fleetplan batching`: simulations of every candidate that can run, by load."""

from fleetplan.cli.stage import stage_command

command = stage_command("batching")
