"""Types made of other types: arrays, lists, sets, maps, tuples, rows, values that may be null or that expire."""
