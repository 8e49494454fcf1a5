"""One module a command or group of commands."""
