"""Throughput beside peers and beside what the hardware allows: `make bench`."""
