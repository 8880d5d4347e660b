"""Decide how many GPUs will serve an LLM's traffic within its latency promises, at what cost, and how sure that is."""

__version__ = "0.1.0"
