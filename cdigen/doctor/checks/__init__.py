"""The checks of driver, specs, runtimes and security."""
