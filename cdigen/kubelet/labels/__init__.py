"""The labels of the node for the advertised devices, in a file that Node Feature Discovery reads."""
