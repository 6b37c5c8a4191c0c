"""All tests, their reference and their tools."""
