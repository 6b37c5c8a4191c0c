"""Text as Java sees it: decoded and hashed."""
