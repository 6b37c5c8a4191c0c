"""The Spark session, and the engine that runs a build in it."""
