"""The YAML parser: ``events`` reads libyaml's events with lines and columns, ``scalars`` converts values."""
