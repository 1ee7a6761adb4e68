"""The `claude` CLI and everything that knows it: command line, process, stream, files."""
