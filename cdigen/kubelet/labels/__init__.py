"""The node's labels, by a file that Node Feature Discovery reads: what is true of the offered devices."""
