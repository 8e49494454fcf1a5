"""Where the values of a call come from, judged by what its session said and read; pure, and bounded."""
