"""Types with parts that any Java program has: arrays, lists, maps, tuples, rows."""
