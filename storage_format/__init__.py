"""The RocketMQ store format: bytes and numpy arrays in, bytes and numpy arrays out.

Nothing here opens a file, starts Spark or reads a clock. Authority: the ``store`` module of Apache RocketMQ 4.9 to 5.5.
"""
