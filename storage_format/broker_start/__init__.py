"""What the start of a broker does to a store (``DefaultMessageStore.load`` and ``start``), worked out without a broker."""
