"""Write ConsumeQueue files and IndexFiles."""
