"""The one function of this program: discover, name, deliver, build, check, publish."""
