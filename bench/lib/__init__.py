"""What all figures of bench/reproduce share. Python's standard library alone."""
