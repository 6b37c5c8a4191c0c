"""What runs on the driver: the plan, the jobs, publishing, settings and the command line."""
