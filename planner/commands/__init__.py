"""Commands: the command line, the server, MCP and Python call them."""
