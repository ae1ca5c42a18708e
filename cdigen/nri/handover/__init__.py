"""The end of a plugin's registration with a runtime, so that another instance can take over."""
