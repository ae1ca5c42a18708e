"""Plan changes to the runtimes' configuration files: ``plan`` of a runtime's module gives ``Change``s."""
