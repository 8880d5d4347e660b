"""The stages `candidates`, `roofline`, `batching` and `sizing`: from a scenario to the rows of their tables."""
