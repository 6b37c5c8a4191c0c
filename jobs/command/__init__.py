"""What the commands share: words of a command line, a broker's own settings, and how a run ends that does not end well."""
