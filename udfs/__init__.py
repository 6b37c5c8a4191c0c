"""Code that runs on executors: functions from record batches to record batches. They open files and call storage_format."""
