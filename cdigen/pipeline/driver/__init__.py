"""What the pipeline reads of a driver besides the inventory: modules, nodes, links, version of the API."""
