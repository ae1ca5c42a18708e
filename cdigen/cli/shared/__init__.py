"""What several commands share: options, parsing, and output."""
