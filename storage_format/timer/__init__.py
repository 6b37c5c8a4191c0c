"""The files of a 5.x broker's timer messages: which of them wait in its wheel, and from where it takes further ones."""
