"""The results: the data dictionary, Parquet parts, and the DuckDB store that is made from them."""
