"""The parts that the canonical and the heap stream share: headers, windows and spans of key groups, and raw timers."""
