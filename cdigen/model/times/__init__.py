"""Elapsed times, wall-clock times and growing delays."""
