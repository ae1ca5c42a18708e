"""The adjustment of a container that follows from a decision."""
