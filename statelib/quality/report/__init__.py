"""The report of the gate as pages: its directory, its pages, and the masking of users' text."""
