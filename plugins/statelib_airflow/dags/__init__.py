"""The DAGs that pipeline files and housekeeping get, and the tasks that only these DAGs have."""
