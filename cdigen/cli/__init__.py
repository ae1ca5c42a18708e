"""The command line of cdigen: one file per command.

cdigen imports only the file of the called command.
"""
