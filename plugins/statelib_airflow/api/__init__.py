"""The back end of the page "State": reads the catalog and the ``_metadata`` of checkpoints, and changes nothing."""
