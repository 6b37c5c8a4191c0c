"""What is in a store, as its files and a sample of its log tell: nothing is read whole, and no record is counted."""
