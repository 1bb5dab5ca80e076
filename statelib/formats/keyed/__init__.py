"""What all streams of keyed state have in common: the header, key groups, raw timers."""
