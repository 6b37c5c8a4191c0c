"""What a log says of delayed, timed and half messages: which of them were delivered, and which a broker still has to."""
