"""What a run comes to, for people and for programs."""
