"""Messages of every fate, by real clients on a real broker: what decoders and the tracing of a message are held against."""
