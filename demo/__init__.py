"""The demonstration: real flights, through a real Airflow, into real state, checked with another engine."""
