"""Read the text of a spec file: libyaml's events, plain scalars, lines and columns."""
