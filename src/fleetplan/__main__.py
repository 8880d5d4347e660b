"""Run the command line with `python -m fleetplan`."""

from fleetplan.cli import main

main()
