"""One checkpoint as a Spark job: the driver's part and the tasks' part."""
