"""What became of one request, step by step, for an OpenTelemetry collector. Off unless switched on."""
