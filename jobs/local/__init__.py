"""The engine that runs on processes of one machine, without Java."""
