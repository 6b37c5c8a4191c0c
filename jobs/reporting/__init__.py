"""``report``: what is shown, and the page that shows it."""
