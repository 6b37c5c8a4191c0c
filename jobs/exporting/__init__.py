"""Messages of a log, chosen and written into files of other kinds."""
