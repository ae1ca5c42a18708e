"""The rules of CDI documents; each rule has a name, a severity and a check."""
