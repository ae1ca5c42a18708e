"""The one function of cdigen: a host's state becomes its CDI specs. ``generate`` lists the stages."""
