"""What is wrong with a pipeline file: pure checks that find problems and never raise."""
