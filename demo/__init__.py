"""The demonstration: a real Airflow applies real flights to state, and polars computes the same result directly."""
