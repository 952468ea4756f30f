"""Requests as OpenTelemetry traces, for who asks for them: imported where `[trace]` is set, and at no other time."""
