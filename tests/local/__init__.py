"""The engine of one machine: the bytes that Spark gives, without Java, whatever ends its processes."""
