"""Other libraries on regard. Each is imported by its own name, and needs that library."""
