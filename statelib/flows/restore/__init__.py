"""The restore story: find a snapshot, say what a restore would do, make it the pipeline's head."""
