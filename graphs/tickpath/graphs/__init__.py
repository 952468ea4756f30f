"""What is captured and replayed: buckets, pinned slots."""
