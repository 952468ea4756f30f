"""The messages of the gRPC side: open_inference.proto, and what protoc made of it (`make proto`)."""
