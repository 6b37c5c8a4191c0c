"""What stands in a repaired log in the place of what is lost: records and fillers that a broker accepts."""
