"""The records of cdigen's own work, in its state directory."""
