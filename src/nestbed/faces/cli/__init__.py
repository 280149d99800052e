"""The command line: parse, call, print, advise. A command is one file here and one entry in `registry`."""
