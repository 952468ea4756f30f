"""What one request costs on a GPU, step by step."""
