"""Stores that RocketMQ itself wrote, and what its own rebuild made of them."""
