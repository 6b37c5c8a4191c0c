"""An independent, slow and plain reference of what a rebuild must give.

Written from the format's description and from RocketMQ's `store` module alone, with `struct`, dicts and
`zlib`; it imports nothing of the packages under test, so that a mistake there cannot hide here.
"""
