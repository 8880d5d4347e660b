"""The report: reads the store, computes nothing beyond aggregation, writes pages that need no network."""
