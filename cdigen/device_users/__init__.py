"""The users of devices: containers that the engines report, and processes with their containers.

All facts are read only on demand (``polling``).
"""
