"""Pages and endpoints, one module for each noun."""
