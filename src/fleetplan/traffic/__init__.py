"""Arrivals, lengths, sessions and traces: all of them become one `Requests` of arrays."""
