"""The decision: candidates, the least count that holds every promise, its evidence, cost, spares and levers."""
