"""``make matrix``: the wheel with every supported Airflow, PySpark and catalog database, in real runs."""
