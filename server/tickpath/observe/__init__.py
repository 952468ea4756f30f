"""The observer process, and the record layout it shares with the core."""
