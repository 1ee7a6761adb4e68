"""The HTTP API: `/api/v1/`, and `/mcp` for other agents."""
