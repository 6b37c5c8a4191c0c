"""Delayed and timer messages over two lives of a real broker: killed, its log restored alone, and started again."""
