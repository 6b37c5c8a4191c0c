"""What a log and the files derived from it should be, compared with what they are."""
