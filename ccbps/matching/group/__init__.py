"""One-time schemes by group programs, and public functions of both sides' bits."""
