"""What an export does of its own to the messages of a log: in the threads of a driver, and in the tasks of an engine."""
