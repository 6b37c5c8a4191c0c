"""``query``: messages found by key, id, queue offset, time or physical offset."""
