"""The command line: thin shells around the flows. Exit status 0 fine, 1 found a problem, 2 refused or failed."""
