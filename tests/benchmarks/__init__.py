"""Ratios behind any claim about speed: two things measured side by side, in one run. The benchmarks assert nothing."""
