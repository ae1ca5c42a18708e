"""The rules that a CDI document is held to, each with its name, its severity and its check."""
