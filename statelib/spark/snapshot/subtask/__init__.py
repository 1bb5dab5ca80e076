"""The part of a checkpoint that runs in the tasks of the Spark job."""
