"""``query``: messages found by key, tag, id, queue offset, time or physical offset."""
